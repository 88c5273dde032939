// Tier: one level of storage for records, as tables of 16-byte keys. It
// moves bytes and understands none of them.
//
// Thread rule: all calls may come from any thread. Views and writers live for one call and never leave it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/digest.h"
#include "src/base/result.h"

namespace rekindle {

// DO NOT CHANGE THESE VALUES: they are stored.
enum class Table : char {
  kEntry = 'e',       // entry id -> object, see export_cache/formats/object.h
  kManifest = 'm',    // prekey -> manifest record
  kSummary = 's',     // entry id -> summary record
  kUsage = 'u',       // zero -> usage record
  kTombstones = 't',  // zero -> tombstones record
  kPin = 'p',         // entry id -> pin record
  kLeaves = 'l',      // entry id -> leaves record
};

// A consistent view of a tier. A missing record is std::nullopt, not an Error.
class TierReader {
 public:
  using Visitor = std::function<void(const Digest& key, std::string_view record)>;

  virtual ~TierReader() = default;
  virtual Result<std::optional<std::string>> get(Table table, const Digest& key) = 0;
  // Every record of `table` in the order of keys. `record` is valid during the visit only.
  virtual Status for_each(Table table, const Visitor& visit) = 0;
  // The keys of `table`, ascending.
  virtual Result<std::vector<Digest>> keys(Table table) = 0;
};

// Reads show the state with the changes so far; for others they become visible together, or not at all.
class TierWriter : public TierReader {
 public:
  virtual void put(Table table, const Digest& key, std::string_view record) = 0;
  virtual void remove(Table table, const Digest& key) = 0;  // removing what is not there is no error
  // A number to be had with Tier::note, cheaply, once the update has committed.
  virtual void note(std::uint64_t value) = 0;
};

struct TierStats {
  std::uint64_t disk_bytes = 0;
};

// The functions given to read and update may run a second time, after a damaged tier was repaired: they start
// from scratch each time. An Error from them ends the call and is returned; an update then writes nothing.
class Tier {
 public:
  virtual ~Tier() = default;

  virtual Status read(const std::function<Status(TierReader&)>& view) = 0;
  // `committed` runs once the change is durable and before any other process can see or change the tier.
  // kDoNotWait: kIo at once when another process is at work here.
  enum class Patience { kWait, kDoNotWait };
  virtual Status update(const std::function<Status(TierWriter&)>& change,
                        const std::function<void()>& committed = {}, Patience patience = Patience::kWait) = 0;
  virtual Status clear(const std::function<void()>& committed = {}) = 0;
  virtual Result<TierStats> stats() = 0;
  // TierWriter::note of the last update; 0 when there was none.
  virtual std::uint64_t note() = 0;
};

}  // namespace rekindle
