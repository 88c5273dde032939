// The export cache. No logic here: its contract is export_cache/export_cache.h.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "export_cache/export_cache.h"
#include "export_cache/misses/explain.h"
#include "export_cache/tiers/remote.h"
#include "export_cache/units.h"
#include "python/bindings/bindings.h"
#include "python/bindings/cache_values.h"
#include "python/bindings/errors.h"

namespace rekindle::python {

namespace py = pybind11;
using Sections = std::map<std::string, std::string>;

namespace {

Digest digest_from(const std::string& hex) { return value_or_throw(Digest::from_hex(hex)); }

std::unique_ptr<ExportCache> open_cache(const std::string& dir, bool readonly,
                                        std::optional<std::uint64_t> size_limit,
                                        std::optional<std::string> remote) {
  CacheOptions options{.dir = dir, .mode = readonly ? CacheMode::kReadOnly : CacheMode::kReadWrite};
  if (size_limit) options.size_limit = *size_limit;
  if (remote) options.remote = *std::move(remote);
  const py::gil_scoped_release release;
  return value_or_throw(ExportCache::open(std::move(options)));
}

py::list candidate_rows(const std::vector<Candidate>& candidates) {
  py::list rows;
  for (const Candidate& found : candidates) {
    rows.append(py::make_tuple(found.entry.hex(), py::bytes(found.observations), found.created));
  }
  return rows;
}

py::list lookup(ExportCache& self, const std::string& prekey) {
  const Digest digest = digest_from(prekey);
  return candidate_rows(without_gil([&] { return self.lookup(digest); }));
}

py::list lookup_remote(ExportCache& self, const std::string& prekey) {
  const Digest digest = digest_from(prekey);
  return candidate_rows(without_gil([&] { return self.lookup_remote(digest); }));
}

py::dict entry_dict(const Entry& entry) {
  py::dict sections, result;
  for (const auto& [name, bytes] : entry.sections) sections[py::str(name)] = py::bytes(bytes);
  result["meta"] = entry.meta;
  result["sections"] = sections;
  return result;
}

py::object load(ExportCache& self, const std::string& id) {
  const Digest digest = digest_from(id);
  const std::optional<Entry> entry = without_gil([&] { return self.load(digest); });
  return entry ? py::object(entry_dict(*entry)) : py::none();
}

py::tuple encode(std::string meta, Sections sections) {
  const Entry entry{std::move(sections), std::move(meta)};
  const std::string record = without_gil([&] { return encode_entry(entry); });
  return py::make_tuple(entry_id(entry).hex(), py::bytes(record));
}

py::dict decode(const std::string& record, const std::string& id) {
  const Digest digest = digest_from(id);
  return entry_dict(without_gil([&] { return decode_entry(record, digest); }));
}

std::string store(ExportCache& self, const std::string& prekey, const py::bytes& observations,
                  std::string meta, Sections sections, const LeafTree& leaves) {
  const Digest digest = digest_from(prekey);
  std::string observed = observations;
  const Entry entry{std::move(sections), std::move(meta), leaves};
  return without_gil([&] { return self.store(digest, std::move(observed), entry); }).hex();
}

py::list list(ExportCache& self) {
  py::list rows;
  for (const EntryInfo& info : without_gil([&] { return self.list(); })) {
    rows.append(as_dict(info));
  }
  return rows;
}

py::dict stats(ExportCache& self) {
  const CacheStats stats = without_gil([&] { return self.stats(); });
  py::dict row;
  row["lookups"] = stats.lookups;
  row["hits"] = stats.hits;
  row["misses"] = stats.misses;
  row["corrupt"] = stats.corrupt;
  row["stores"] = stats.stores;
  row["store_failures"] = stats.store_failures;
  row["evictions"] = stats.evictions;
  row["removals"] = stats.removals;
  row["bypasses"] = stats.bypasses;
  row["bypass_codes"] = stats.bypass_codes;
  row["seconds_saved"] = stats.seconds_saved;
  row["entries"] = stats.entries;
  row["pinned"] = stats.pinned;
  row["bytes"] = stats.bytes;
  row["limit_bytes"] = stats.limit_bytes;
  row["disk_bytes"] = stats.disk_bytes;
  return row;
}

py::object leaves(ExportCache& self, const std::string& id) {
  const Digest digest = digest_from(id);
  LeafTree tree = std::move(without_gil([&] { return self.leaves({digest}); }).front());
  return tree.empty() ? py::object(py::none()) : py::cast(std::move(tree));
}

// "evicted", "corrupt", ... for a prekey that is gone; None where nothing is known of that.
py::object gone(const LookupFacts& self) {
  return self.gone ? py::object(py::str(gone_reason_name(self.gone->reason))) : py::none();
}

py::object nearest(const LookupFacts& self, const LeafTree& tree) {
  std::optional<NearestEntry> found = nearest_of(self.of_model, tree);
  if (!found) return py::none();
  return py::make_tuple(found->id.hex(), found->created, found->similarity.equal, found->similarity.total,
                        std::move(found->leaves));
}

// `row` has the names of struct Miss; `nearest` may be empty,
// `differences` are (path, before, after, places).
void record_miss(ExportCache& self, const py::dict& row) {
  Miss miss;
  miss.time = row["time"].cast<std::int64_t>();
  miss.model = row["model"].cast<std::string>();
  miss.reason = row["reason"].cast<std::string>();
  miss.prekey = digest_from(row["prekey"].cast<std::string>());
  if (const auto id = row["nearest"].cast<std::string>(); !id.empty()) miss.nearest = digest_from(id);
  miss.nearest_created = row["nearest_created"].cast<std::int64_t>();
  miss.equal = row["equal"].cast<std::uint64_t>();
  miss.total = row["total"].cast<std::uint64_t>();
  using Row = std::tuple<std::string, std::string, std::string, std::uint64_t>;
  for (auto& [path, before, after, places] : row["differences"].cast<std::vector<Row>>()) {
    miss.differences.push_back({std::move(path), std::move(before), std::move(after), places});
  }
  const py::gil_scoped_release release;
  self.record_miss(miss);
}

py::list misses(ExportCache& self) {
  py::list rows;
  for (const Miss& miss : self.misses()) {
    py::list differences;
    for (const Difference& found : miss.differences) {
      differences.append(py::make_tuple(found.path, found.before, found.after, found.places));
    }
    py::dict row;
    row["time"] = miss.time;
    row["model"] = miss.model;
    row["reason"] = miss.reason;
    row["prekey"] = miss.prekey.hex();
    row["nearest"] = miss.nearest == Digest{} ? std::string() : miss.nearest.hex();
    row["nearest_created"] = miss.nearest_created;
    row["equal"] = miss.equal;
    row["total"] = miss.total;
    row["omitted"] = miss.omitted;
    row["differences"] = differences;
    rows.append(row);
  }
  return rows;
}

void bind_lease(py::module_& m) {
  py::class_<Lease>(m, "Lease")
      .def(
          "wait",
          [](Lease& self, double seconds) {
            const auto slice = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
            return lease_state_name(without_gil([&] { return self.wait(slice); }));
          },
          py::arg("seconds"))
      .def_property_readonly("holder", &Lease::holder)
      .def_property_readonly("waited", &Lease::waited)
      .def("open", [](Lease& self) { without_gil([&] { return self.open(); }); })
      .def("release", &Lease::release, py::call_guard<py::gil_scoped_release>());
}

void bind_entries(py::class_<ExportCache>& cache) {
  cache.def("lookup", &lookup, py::arg("prekey"))
      .def("lookup_remote", &lookup_remote, py::arg("prekey"))
      .def("load", &load, py::arg("entry"))
      .def("store", &store, py::arg("prekey"), py::arg("observations"), py::arg("meta"), py::arg("sections"),
           py::arg("leaves") = LeafTree())
      .def("lease",
           [](const ExportCache& self, const std::string& prekey) { return self.lease(digest_from(prekey)); })
      .def("find",
           [](ExportCache& self, const std::string& prefix) {
             return without_gil([&] { return self.find(prefix); }).hex();
           })
      .def("list", &list)
      .def("remove",
           [](ExportCache& self, const std::string& id) {
             const Digest digest = digest_from(id);
             without_gil([&] { return self.remove(digest); });
           })
      .def("clear", [](ExportCache& self) { without_gil([&] { return self.clear(); }); })
      .def("leaves", &leaves, py::arg("entry"))
      .def(
          "facts",
          [](ExportCache& self, const std::string& prekey, const std::string& model) {
            const Digest digest = digest_from(prekey);
            return without_gil([&] { return self.facts(digest, model); });
          },
          py::arg("prekey"), py::arg("model"));
}

void bind_facts(py::module_& m) {
  py::class_<LookupFacts>(m, "LookupFacts")
      .def_property_readonly("candidates",
                             [](const LookupFacts& self) { return candidate_rows(self.candidates); })
      .def_property_readonly("gone", &gone)
      .def_property_readonly("knows_model", [](const LookupFacts& self) { return !self.of_model.empty(); })
      .def("nearest", &nearest, py::arg("tree"));
}

void bind_counters(py::class_<ExportCache>& cache) {
  cache.def("stats", &stats)
      .def(
          "record_hit",
          [](ExportCache& self, const std::string& entry, double seconds_saved) {
            self.record_hit(digest_from(entry), seconds_saved);
          },
          py::arg("entry"), py::arg("seconds_saved"))
      .def("record_bypass", &ExportCache::record_bypass, py::arg("code"),
           py::call_guard<py::gil_scoped_release>())
      .def("record_miss", &record_miss, py::arg("miss"))
      .def("misses", &misses);
}

}  // namespace

void bind_cache(py::module_& m) {
  bind_lease(m);
  bind_facts(m);
  m.def("default_cache_dir", &default_cache_dir);
  m.def("parse_size", [](const std::string& text) { return value_or_throw(parse_size(text)); });
  m.def("check_remote", [](const std::string& text) { (void)value_or_throw(Remote::parse(text)); });
  m.def("encode_entry", &encode, py::arg("meta"), py::arg("sections"));
  m.def("decode_entry", &decode, py::arg("record"), py::arg("id"));
  py::class_<ExportCache> cache(m, "ExportCache");
  cache
      .def(py::init(&open_cache), py::arg("dir") = "", py::arg("readonly") = false,
           py::arg("size_limit") = py::none(), py::arg("remote") = py::none())
      .def_static("open", &open_cache, py::arg("dir") = "", py::arg("readonly") = false,
                  py::arg("size_limit") = py::none(), py::arg("remote") = py::none())
      .def_property_readonly("dir", &ExportCache::dir);
  bind_entries(cache);
  bind_counters(cache);
}

}  // namespace rekindle::python
