#include "export_cache/upkeep/usage.h"

#include <algorithm>
#include <cmath>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {

bool is_amount(double number) { return std::isfinite(number) && number >= 0; }

void EntryUsage::hit(std::int64_t time, double seconds) {
  ++hits;
  seconds_saved += seconds;
  const double between = static_cast<double>(time - last_used);
  const double decay = std::exp2(-std::abs(between) / kHeatHalfLife);
  heat = between >= 0 ? heat * decay + 1 : heat + decay;
  last_used = std::max(last_used, time);
}

void Usage::apply(const CacheEvent& event) {
  switch (event.kind) {
    case EventKind::kLookup:
      ++counters.lookups;
      break;
    case EventKind::kCorrupt:
      ++counters.corrupt;
      break;
    case EventKind::kStore:
      ++counters.stores;
      break;
    case EventKind::kStoreFailure:
      ++counters.store_failures;
      break;
    case EventKind::kHit: {
      ++counters.hits;
      counters.seconds_saved += event.seconds;
      entries[event.entry].hit(event.time, event.seconds);
      break;
    }
    case EventKind::kBypass: {
      ++counters.bypasses;
      const bool known =
          counters.bypass_codes.contains(event.code) || counters.bypass_codes.size() < kMaxCodes;
      ++counters.bypass_codes[known ? event.code : "other"];
      break;
    }
  }
}

Result<std::string> encode_usage(const Usage& usage) {
  ByteWriter writer;
  const CacheStats& counters = usage.counters;
  for (const std::uint64_t counter :
       {counters.lookups, counters.hits, counters.corrupt, counters.stores, counters.store_failures,
        counters.bypasses, counters.evictions, counters.removals}) {
    writer.number(counter);
  }
  writer.number(counters.seconds_saved);
  writer.number(counters.entries);
  writer.number(counters.bytes);
  writer.number<std::uint64_t>(counters.bypass_codes.size());
  for (const auto& [code, count] : counters.bypass_codes) {
    writer.string(code);
    writer.number(count);
  }
  writer.number<std::uint64_t>(usage.entries.size());
  for (const auto& [id, used] : usage.entries) {
    writer.raw(id.view());
    writer.number(used.hits);
    writer.number(used.seconds_saved);
    writer.number(used.last_used);
    writer.number(used.heat);
  }
  writer.number<std::uint64_t>(usage.folded.size());
  for (const auto& [name, bytes] : usage.folded) {
    writer.string(name);
    writer.number(bytes);
  }
  return encode_record(RecordKind::kUsage, Digest{}, writer.bytes());
}

Result<Usage> decode_usage(std::string_view record) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kUsage, Digest{}));
  ByteReader reader(raw);
  Usage usage;
  CacheStats& counters = usage.counters;
  for (std::uint64_t* counter :
       {&counters.lookups, &counters.hits, &counters.corrupt, &counters.stores, &counters.store_failures,
        &counters.bypasses, &counters.evictions, &counters.removals}) {
    *counter = reader.number<std::uint64_t>();
  }
  counters.seconds_saved = reader.number<double>();
  if (!is_amount(counters.seconds_saved)) return corruption("usage record: a number is out of bounds");
  counters.entries = reader.number<std::uint64_t>();
  counters.bytes = reader.number<std::uint64_t>();
  for (std::uint64_t left = reader.count(16); left > 0 && !reader.failed(); --left) {
    const std::string code(reader.string());
    counters.bypass_codes[code] = reader.number<std::uint64_t>();
  }
  for (std::uint64_t left = reader.count(48); left > 0 && !reader.failed(); --left) {
    EntryUsage& used = usage.entries[read_digest(reader)];
    used.hits = reader.number<std::uint64_t>();
    used.seconds_saved = reader.number<double>();
    used.last_used = reader.number<std::int64_t>();
    used.heat = reader.number<double>();
    if (!is_time(used.last_used) || !is_amount(used.seconds_saved) || !is_amount(used.heat)) {
      return corruption("usage record: a number is out of bounds");
    }
  }
  for (std::uint64_t left = reader.count(16); left > 0 && !reader.failed(); --left) {
    const std::string name(reader.string());
    usage.folded[name] = reader.number<std::uint64_t>();
  }
  if (!reader.at_end()) return corruption("usage record: bad lengths");
  return usage;
}

}  // namespace rekindle
