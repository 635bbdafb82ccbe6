#include "auth/password.h"

#include "pg/transaction.h"

extern "C" {
#include <access/htup_details.h>
#include <catalog/pg_authid.h>
#include <libpq/crypt.h>
#include <utils/acl.h>
#include <utils/memutils.h>
#include <utils/syscache.h>

// Declared here because libpq/scram.h pulls in libpq-be.h and with it GSSAPI's headers.
extern char* pg_be_scram_build_secret(const char* password);
}

#include <string>

#include "pg/log.h"
#include "pg/settings.h"

namespace pgmqtt::auth {

using mqtt::ReasonCode;

namespace {

// PostgreSQL hashes the whole password 8,192 times to check it: 65,535 bytes took half a second, and
// everybody waits.
constexpr size_t kMaxPassword = 1024;

enum class Outcome { kAccepted, kWrongPassword, kTooLong, kNoSuchRole, kNoPassword, kMd5, kNoLogin };

const char* text(Outcome outcome) {
    switch (outcome) {
        case Outcome::kAccepted:
            return "accepted";
        case Outcome::kWrongPassword:
            return "the password is wrong";
        case Outcome::kTooLong:
            return "the password has more than 1024 bytes";
        case Outcome::kNoSuchRole:
            return "the role does not exist";
        case Outcome::kNoPassword:
            return "the role has no password or it is no longer valid (VALID UNTIL)";
        case Outcome::kMd5:
            return "the role's password is stored as md5";
        case Outcome::kNoLogin:
            return "the role has no LOGIN";
    }
    return "";
}

bool may_log_in(const char* role) {
    HeapTuple tuple = SearchSysCache1(AUTHNAME, CStringGetDatum(role));
    if (!HeapTupleIsValid(tuple)) return false;
    bool can = reinterpret_cast<Form_pg_authid>(GETSTRUCT(tuple))->rolcanlogin;
    ReleaseSysCache(tuple);
    return can;
}

// Takes as long for a role that does not exist, so that time does not tell who exists. Its verifier
// matches no password: it is made of one nobody knows, once.
const char* decoy_verifier() {
    static char* verifier = nullptr;
    if (verifier == nullptr) {
        uint8 secret[32];
        if (!pg_strong_random(secret, sizeof secret)) elog(ERROR, "no random bytes");
        char password[65];
        for (size_t i = 0; i < sizeof secret; ++i) snprintf(password + 2 * i, 3, "%02x", secret[i]);
        MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
        verifier = pg_be_scram_build_secret(password);
        MemoryContextSwitchTo(before);
    }
    return verifier;
}

Outcome check(const char* role, const char* password) {
    const char* detail = nullptr;
    bool exists = SearchSysCacheExists1(AUTHNAME, CStringGetDatum(role));
    char* verifier = exists ? get_role_password(role, &detail) : nullptr;
    bool scram = verifier != nullptr && get_password_type(verifier) == PASSWORD_TYPE_SCRAM_SHA_256;
    const char* against = scram ? verifier : decoy_verifier();
    bool matches = plain_crypt_verify(role, against, password, &detail) == STATUS_OK;
    if (!exists) return Outcome::kNoSuchRole;
    if (verifier == nullptr) return Outcome::kNoPassword;
    if (!scram) return Outcome::kMd5;
    if (!matches) return Outcome::kWrongPassword;
    return may_log_in(role) ? Outcome::kAccepted : Outcome::kNoLogin;
}

// The client is told the same whatever it was; the log tells which.
broker::AuthVerdict refuse(const broker::AuthRequest& request, Outcome outcome) {
    std::string detail = "Role \"" + request.username + "\" from " + request.peer.address + ": " +
                         text(outcome) + ".";
    const char* hint = outcome == Outcome::kMd5
                           ? "Set password_encryption = 'scram-sha-256' and set the password again."
                           : "";
    pg::log(LOG, "pgmqtt refused a log-in", detail, hint);
    return {ReasonCode::kBadUserNameOrPassword, {}};
}

broker::AuthVerdict anonymous(const broker::AuthRequest& request) {
    switch (pg::settings.allow_anonymous) {
        case pg::kAnonymousOn:
            return {};
        case pg::kAnonymousLocal:
            if (request.peer.loopback) return {};
            break;
        default:
            break;
    }
    pg::log(LOG, "pgmqtt refused an anonymous client from " + request.peer.address, {},
            "Log in with a role's name and password, or set pgmqtt.allow_anonymous.");
    return {ReasonCode::kNotAuthorized, {}};
}

}  // namespace

broker::AuthVerdict authenticate(const broker::AuthRequest& request) {
    if (!request.has_username) return anonymous(request);
    // A role's name and a password hold no NUL; what does matches no role.
    if (request.username.find('\0') != std::string::npos || request.username.size() >= NAMEDATALEN)
        return refuse(request, Outcome::kNoSuchRole);
    if (request.password.find('\0') != std::string::npos)
        return refuse(request, Outcome::kWrongPassword);
    if (request.password.size() > kMaxPassword) return refuse(request, Outcome::kTooLong);
    Outcome outcome = Outcome::kNoSuchRole;
    pg::Status status = pg::transaction(
        {.read_only = true, .activity = "pgmqtt: checking a password"},
        [&] { outcome = check(request.username.c_str(), request.password.c_str()); });
    if (!status) {
        pg::log(WARNING, "pgmqtt could not check a password", status.error());
        return {ReasonCode::kServerUnavailable, {}};
    }
    if (outcome != Outcome::kAccepted) return refuse(request, outcome);
    return {ReasonCode::kSuccess, request.username};
}

}  // namespace pgmqtt::auth
