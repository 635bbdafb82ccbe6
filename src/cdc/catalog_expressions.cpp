#include "cdc/catalog_expressions.h"

extern "C" {
#include <access/genam.h>
#include <access/htup_details.h>
#include <access/table.h>
#include <catalog/pg_constraint.h>
#include <catalog/pg_index.h>
#include <catalog/pg_partitioned_table.h>
#include <catalog/pg_statistic_ext.h>
#include <nodes/nodes.h>
#include <utils/builtins.h>
#include <utils/fmgroids.h>
#include <utils/rel.h>
}

#include <initializer_list>

// Everything here may raise: plain values only.
namespace pgmqtt::cdc {

namespace {

// Where a catalog keeps trees, and the column (the first of `index`) that says for what.
struct Place {
    Oid catalog;
    Oid index;
    AttrNumber key;
};

List* read_trees(const Place& place, Oid of, std::initializer_list<AttrNumber> columns) {
    List* trees = NIL;
    Relation catalog = table_open(place.catalog, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, place.key, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(of));
    SysScanDesc scan = systable_beginscan(catalog, place.index, true, nullptr, 1, &key);
    HeapTuple tuple;
    while (HeapTupleIsValid(tuple = systable_getnext(scan))) {
        for (AttrNumber column : columns) {
            bool is_null;
            Datum tree = heap_getattr(tuple, column, RelationGetDescr(catalog), &is_null);
            if (!is_null) trees = lappend(trees, stringToNode(TextDatumGetCString(tree)));
        }
    }
    systable_endscan(scan);
    table_close(catalog, AccessShareLock);
    return trees;
}

}  // namespace

List* domain_checks(Oid domain) {
    return read_trees({ConstraintRelationId, ConstraintTypidIndexId, Anum_pg_constraint_contypid},
                      domain, {Anum_pg_constraint_conbin});
}

// A table of many partitions is looked through with each batch: only where there may be something.
List* planned_expressions(Form_pg_class table) {
    List* trees = read_trees(
        {StatisticExtRelationId, StatisticExtRelidIndexId, Anum_pg_statistic_ext_stxrelid},
        table->oid, {Anum_pg_statistic_ext_stxexprs});
    if (table->relhasindex) {
        Place indexes = {IndexRelationId, IndexIndrelidIndexId, Anum_pg_index_indrelid};
        trees = list_concat(trees, read_trees(indexes, table->oid,
                                              {Anum_pg_index_indexprs, Anum_pg_index_indpred}));
    }
    if (table->relkind == RELKIND_PARTITIONED_TABLE) {
        Place keys = {PartitionedRelationId, PartitionedRelidIndexId,
                      Anum_pg_partitioned_table_partrelid};
        trees =
            list_concat(trees, read_trees(keys, table->oid, {Anum_pg_partitioned_table_partexprs}));
    }
    if (table->relchecks > 0) {
        Place checks = {ConstraintRelationId, ConstraintRelidTypidNameIndexId,
                        Anum_pg_constraint_conrelid};
        trees = list_concat(trees, read_trees(checks, table->oid, {Anum_pg_constraint_conbin}));
    }
    return trees;
}

}  // namespace pgmqtt::cdc
