#include "export_cache/formats/tombstones.h"

#include <algorithm>

#include "export_cache/formats/record.h"
#include "src/base/bytes.h"

namespace rekindle {
namespace {

constexpr std::size_t kTombstoneBytes = 16 + 16 + 1 + 8;

}  // namespace

const char* gone_reason_name(GoneReason reason) {
  switch (reason) {
    case GoneReason::kEvicted:
      return "evicted";
    case GoneReason::kCorrupt:
      return "corrupt";
    case GoneReason::kRemoved:
      return "removed";
    case GoneReason::kCleared:
      return "cleared";
    case GoneReason::kVersion:
      return "version";
    case GoneReason::kReplaced:
      return "replaced";
  }
  return "unknown";
}

void Tombstones::add(const Tombstone& tombstone) {
  ring_.push_back(tombstone);
  if (ring_.size() > kMaxTombstones) {
    ring_.erase(ring_.begin(), ring_.end() - static_cast<std::ptrdiff_t>(kMaxTombstones));
  }
}

std::optional<Tombstone> Tombstones::find(const Digest& id_or_prekey) const {
  const auto found = std::find_if(ring_.rbegin(), ring_.rend(), [&](const Tombstone& gone) {
    return gone.id == id_or_prekey || gone.prekey == id_or_prekey;
  });
  return found == ring_.rend() ? std::nullopt : std::optional(*found);
}

Result<std::string> encode_tombstones(const Tombstones& tombstones) {
  ByteWriter writer;
  writer.number<std::uint64_t>(tombstones.all().size());
  for (const Tombstone& gone : tombstones.all()) {
    writer.raw(gone.id.view());
    writer.raw(gone.prekey.view());
    writer.number(static_cast<std::uint8_t>(gone.reason));
    writer.number(gone.time);
  }
  return encode_record(RecordKind::kTombstones, Digest{}, writer.bytes());
}

Result<Tombstones> decode_tombstones(std::string_view record) {
  REKINDLE_ASSIGN_OR_RETURN(const std::string raw, decode_record(record, RecordKind::kTombstones, Digest{}));
  ByteReader reader(raw);
  Tombstones tombstones;
  const std::uint64_t count = reader.count(kTombstoneBytes);
  bool known = count <= kMaxTombstones;
  for (std::uint64_t i = 0; i < count && known; ++i) {
    Tombstone gone;
    gone.id = read_digest(reader);
    gone.prekey = read_digest(reader);
    const auto reason = reader.number<std::uint8_t>();
    known = reason >= 1 && reason <= static_cast<std::uint8_t>(GoneReason::kReplaced);
    gone.reason = static_cast<GoneReason>(reason);
    gone.time = reader.number<std::int64_t>();
    known = known && is_time(gone.time);
    tombstones.add(gone);
  }
  if (!known || !reader.at_end()) return corruption("tombstones record: bad lengths or reason");
  return tombstones;
}

}  // namespace rekindle
