// One decoder and one encoder for each packet; codec.cpp chooses among them. The decoders find
// type, sender and flags of the fixed header checked.
#pragma once

#include <string>

#include "mqtt/codec.h"

namespace pgmqtt::mqtt {

using DecodeStatus = base::Status<DecodeError>;

DecodeStatus decode_connack(ByteView body, Version version, Connack& connack);
DecodeStatus decode_subscribe(ByteView body, Version version, Subscribe& subscribe);
DecodeStatus decode_suback(ByteView body, Version version, Suback& suback);
DecodeStatus decode_unsubscribe(ByteView body, Version version, Unsubscribe& unsubscribe);
DecodeStatus decode_unsuback(ByteView body, Version version, Unsuback& unsuback);
DecodeStatus decode_disconnect(ByteView body, Version version, Sender sender,
                               Disconnect& disconnect);
DecodeStatus decode_auth(ByteView body, Sender sender, Auth& auth);

// For Puback, Pubrec, Pubrel and Pubcomp.
template <PacketType kType>
DecodeStatus decode_acknowledgement(ByteView body, Version version, Sender sender,
                                    Acknowledgement<kType>& acknowledgement);
template <PacketType kType>
void encode(const Acknowledgement<kType>& acknowledgement, Version version, std::string& out);

void encode(const Connect& connect, Version version, std::string& out);
void encode(const Connack& connack, Version version, std::string& out);
void encode(const Subscribe& subscribe, Version version, std::string& out);
void encode(const Suback& suback, Version version, std::string& out);
void encode(const Unsubscribe& unsubscribe, Version version, std::string& out);
void encode(const Unsuback& unsuback, Version version, std::string& out);
void encode(const Pingreq& pingreq, Version version, std::string& out);
void encode(const Pingresp& pingresp, Version version, std::string& out);
void encode(const Disconnect& disconnect, Version version, std::string& out);
void encode(const Auth& auth, Version version, std::string& out);

}  // namespace pgmqtt::mqtt
