#include "cdc/follow.h"

#include "pg/backend.h"

#include "cdc/status.h"
#include "pg/follow.h"
#include "pg/shared.h"

namespace pgmqtt::cdc {

namespace {

void warn_if_disabled() {
    StatusCopy stream;
    if (pg::shared()->cdc_state == static_cast<int>(pg::CdcState::kDisabled) &&
        read_status(pg::MappingStatus::kStream, stream)) {
        ereport(WARNING, (errmsg("nothing is published from tables: mappings are disabled"),
                          errdetail("%s", stream.message)));
    }
}

}  // namespace

void follow_at_commit() {
    pg::follow_at_commit(pg::kFollowMappings, warn_if_disabled);
}

}  // namespace pgmqtt::cdc
