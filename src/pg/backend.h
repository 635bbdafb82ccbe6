// PostgreSQL's own headers, before anything of the standard library (its macros are picky), and the
// differences between server versions 14 to 18 that our code meets. Files that know the server begin
// with this.
#pragma once

extern "C" {
#include <postgres.h>

#include <fmgr.h>
#include <miscadmin.h>
}
