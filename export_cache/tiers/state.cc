#include "export_cache/tiers/state.h"

#include "export_cache/files/files.h"
#include "export_cache/formats/record.h"
#include "src/base/log.h"

namespace rekindle {
namespace {

constexpr std::uint64_t kMostStateBytes = 4096;

Status put_state(const std::string& path, const State& state) {
  ByteWriter writer;
  writer.number(state.sequence);
  writer.number(state.note);
  REKINDLE_ASSIGN_OR_RETURN(const std::string record,
                            encode_record(RecordKind::kState, Digest{}, writer.bytes()));
  REKINDLE_ASSIGN_OR_RETURN(NewFile file, NewFile::create(path, 0600));
  REKINDLE_RETURN_IF_ERROR(file.write(record));
  return file.publish_unsynced();
}

}  // namespace

State read_state(const std::string& path) {
  const auto bytes = read_file(path, kMostStateBytes);
  if (!bytes.ok() || !*bytes) return {};
  const auto raw = decode_record(**bytes, RecordKind::kState, Digest{});
  if (!raw.ok()) return {};
  ByteReader reader(*raw);
  State state;
  state.sequence = reader.number<std::uint64_t>();
  state.note = reader.number<std::uint64_t>();
  return reader.at_end() ? state : State{};
}

void write_state(const std::string& path, const State& state) {
  const Status status = put_state(path, state);
  if (!status.ok()) log_debug(status.error().message);
}

}  // namespace rekindle
