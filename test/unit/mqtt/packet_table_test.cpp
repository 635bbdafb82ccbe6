// Each line of test/packets/*.tsv is a test; the format is in test/packets/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "mqtt/codec.h"

namespace pgmqtt::mqtt {
namespace {

struct Row {
    std::string name;  // file_row
    Version version = Version::k5;
    Sender sender = Sender::kClient;
    std::string bytes;
    std::string expectation;
};

void PrintTo(const Row& row, std::ostream* out) {
    *out << row.name << ": " << row.expectation;
}

std::string from_hex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2)
        bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    return bytes;
}

Row parse(const std::string& file, const std::string& line) {
    std::istringstream in(line);
    std::string name, version, sender, hex;
    Row row;
    std::getline(in, name, '\t');
    std::getline(in, version, '\t');
    std::getline(in, sender, '\t');
    std::getline(in, hex, '\t');
    std::getline(in, row.expectation);
    row.name = file + "_" + name;
    row.version = version == "3.1"     ? Version::k31
                  : version == "3.1.1" ? Version::k311
                                       : Version::k5;
    row.sender = sender == "server" ? Sender::kServer : Sender::kClient;
    row.bytes = from_hex(hex);
    return row;
}

std::vector<Row> read_tables() {
    std::vector<Row> rows;
    for (const auto& entry : std::filesystem::directory_iterator(PGMQTT_PACKET_TABLES)) {
        if (entry.path().extension() != ".tsv") continue;
        std::ifstream file(entry.path());
        std::string line;
        while (std::getline(file, line)) {
            if (!line.empty() && line[0] != '#') rows.push_back(parse(entry.path().stem(), line));
        }
    }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
    return rows;
}

// CONNECT has a decoder of its own; from a server it is an ordinary offence.
base::Status<DecodeError> decode_any(const Frame& frame, const Row& row, Packet& packet) {
    if (frame.first_byte >> 4 != 1 || row.sender == Sender::kServer)
        return decode(frame, row.version, row.sender, packet);
    base::Result<Connect, DecodeError> connect = decode_connect(frame);
    if (!connect.ok()) return base::fail(connect.error());
    packet = *connect;
    return base::Done{};
}

class PacketTable : public testing::TestWithParam<Row> {};

TEST_P(PacketTable, holds) {
    const Row& row = GetParam();
    Frame frame;
    Packet packet;
    base::Result<FrameState, DecodeError> state = next_frame(row.bytes, kMaxPacketSize, frame);
    base::Status<DecodeError> status = base::Done{};
    if (!state.ok()) {
        status = base::fail(state.error());
    } else {
        ASSERT_EQ(*state, FrameState::kComplete);
        ASSERT_EQ(frame.size, row.bytes.size());
        status = decode_any(frame, row, packet);
    }

    if (row.expectation.starts_with("error ")) {
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(static_cast<int>(status.error().reason),
                  std::stoi(row.expectation.substr(6), nullptr, 16))
            << status.error().detail;
        EXPECT_STRNE(status.error().detail, "");
        return;
    }
    ASSERT_TRUE(status.ok()) << status.error().detail;
    if (const Connect* connect = std::get_if<Connect>(&packet)) {
        EXPECT_EQ(connect->version, row.version);
    }

    std::string encoded;
    encode(packet, row.version, encoded);
    if (row.expectation == "ok") {
        EXPECT_EQ(encoded, row.bytes);
        return;
    }
    ASSERT_EQ(row.expectation, "ok-shortened");
    EXPECT_NE(encoded, row.bytes);
    Packet again;
    ASSERT_TRUE(next_frame(encoded, kMaxPacketSize, frame).ok());
    ASSERT_TRUE(decode_any(frame, row, again).ok());
    EXPECT_EQ(again, packet);
}

INSTANTIATE_TEST_SUITE_P(Rows, PacketTable, testing::ValuesIn(read_tables()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace pgmqtt::mqtt
