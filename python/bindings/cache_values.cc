#include "python/bindings/cache_values.h"

#include <pybind11/stl.h>

namespace rekindle::python {

pybind11::dict as_dict(const EntryInfo& info) {
  pybind11::dict row;
  row["id"] = info.id.hex();
  row["created"] = info.created;
  row["last_used"] = info.last_used;
  row["hits"] = info.hits;
  row["seconds_saved"] = info.seconds_saved;
  row["cost_seconds"] = info.cost_seconds;
  row["pinned"] = info.pinned;
  row["raw_bytes"] = info.raw_bytes;
  row["stored_bytes"] = info.stored_bytes;
  row["sections"] = info.sections;
  row["meta"] = info.meta;
  return row;
}

}  // namespace rekindle::python
