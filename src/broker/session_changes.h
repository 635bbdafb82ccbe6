// The net effect of many records of session state: of each row the last word, and nothing of what
// came and went in between.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "broker/store_record.h"

namespace pgmqtt::broker {

// Rows to write (new or changed) and rows to remove. Views point where those of the records do.
struct SessionNetEffect {
    struct Session {
        uint64_t id = 0;
        StoredSession session;
    };
    struct Subscription {
        uint64_t session_id = 0;
        StoredSubscription subscription;
    };
    struct Message {
        uint64_t id = 0;
        Durability durability = Durability::kDurable;
        uint64_t source_id = 0;  // not 0: a copy of that one, which is stored; `message` is empty
        MessageView message;
    };
    struct Delivery {
        uint64_t session_id = 0;
        uint64_t sequence = 0;
        uint64_t message_id = 0;
        Durability durability = Durability::kDurable;
        StoredDelivery delivery;
        uint64_t was = 0;  // the message that it referred to before these records, if it was there
    };
    struct Packet {
        uint64_t session_id = 0;
        uint16_t packet_id = 0;
        uint64_t id = 0;
    };
    struct Moved {
        Durability durability = Durability::kDurable;
        uint64_t up_to = 0;
    };

    // With their subscriptions and received identifiers; those below are of other sessions. Their
    // deliveries end one by one: the log is to be read without a look at the sessions, since it
    // also has deliveries for sessions that are not stored (of a share group's members).
    std::vector<uint64_t> ended_sessions;
    std::vector<Session> sessions;
    std::vector<Subscription> subscriptions;
    std::vector<Subscription> unsubscribed;
    std::vector<Message> messages;  // that a delivery needs; by id
    std::vector<Delivery> deliveries;
    std::vector<Delivery> ended_deliveries;
    std::vector<Packet> received;
    std::vector<Packet> released;
    std::vector<Moved> moved;

    // The most that somebody waits for: kDurable, kAsync, or kUnlogged, which is nothing but the
    // commit. Ends of deliveries nobody waits for; a message says by itself what it needs, and the
    // rest, which is logged in any case, needs what pgmqtt.durability says.
    Durability awaited(Durability of_state) const;
};

class SessionChanges {
   public:
    // Of a kind that is about sessions; in the order of the broker.
    void add(const StoreRecord& record);

    // Rows of records to come, or of those that are here, may have been written already: the
    // removal of a row is then never left out.
    void may_be_repeated() { repeated_ = true; }
    bool repeated() const { return repeated_; }

    SessionNetEffect net_effect() const;

    bool empty() const;
    void clear();

   private:
    template <class Row>
    struct Change {
        Row row;
        bool written = false;  // not only ended
        bool ended = false;
    };

    struct Key {
        uint64_t session_id = 0;
        uint64_t number = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct KeyHash {
        size_t operator()(const Key& key) const {
            return base::hash({reinterpret_cast<const char*>(&key), sizeof key});
        }
    };
    struct FilterKey {
        uint64_t session_id = 0;
        ByteView filter;
        friend bool operator==(const FilterKey&, const FilterKey&) = default;
    };
    struct FilterKeyHash {
        size_t operator()(const FilterKey& key) const {
            return base::hash(key.filter, key.session_id);
        }
    };

    // In the order of first mention.
    template <class Row, class RowKey, class Hash = std::hash<RowKey>>
    struct Table {
        std::vector<Change<Row>> changes;
        std::unordered_map<RowKey, size_t, Hash> index;

        void write(const RowKey& key, const Row& row);
        void end(const RowKey& key, const Row& row);
        const Change<Row>* find(const RowKey& key) const;
        void clear();
    };

    using Message = SessionNetEffect::Message;
    using Delivery = SessionNetEffect::Delivery;

    void add_copy(const StoreRecord& record);
    void add_delivery(const StoreRecord& record);
    uint64_t stored_before(uint64_t message_id) const;
    bool session_ended(uint64_t session_id) const;
    bool begun_here(const Delivery& delivery) const;
    void add_deliveries(SessionNetEffect& net) const;
    void add_messages(SessionNetEffect& net) const;

    Table<SessionNetEffect::Session, uint64_t> sessions_;
    Table<SessionNetEffect::Subscription, FilterKey, FilterKeyHash> subscriptions_;
    std::vector<Message> messages_;
    std::unordered_map<uint64_t, size_t> message_index_;
    Table<Delivery, Key, KeyHash> deliveries_;
    Table<SessionNetEffect::Packet, Key, KeyHash> received_;
    std::vector<SessionNetEffect::Moved> moved_;
    bool repeated_ = false;
};

}  // namespace pgmqtt::broker
