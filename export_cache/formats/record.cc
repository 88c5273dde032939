#include "export_cache/formats/record.h"

#include <zstd.h>

#include <cstring>

namespace rekindle {
namespace {

constexpr std::string_view kRecordMagic = "RKND";
constexpr std::uint8_t kCodecNone = 0;
constexpr std::uint8_t kCodecZstd = 1;
constexpr int kZstdLevel = 3;
// A listing reads thousands of small records, and there is nothing to gain in one below a disk block.
constexpr std::size_t kLeastCompressed = 1024;
constexpr std::size_t kKeyAt = 4 + 2 + 1 + 1;
constexpr std::size_t kStoredLengthAt = kKeyAt + 16 + 8;

struct Header {
  std::uint8_t codec = kCodecNone;
  std::uint64_t raw_length = 0;
  std::string_view raw_digest;
  std::string_view payload;
};

Error damaged(RecordKind kind, const Digest& key, const std::string& what) {
  return corruption(std::string(record_kind_name(kind)) + " record " + key.hex() + ": " + what);
}

// Empty when compression does not make it smaller.
std::string compressed(std::string_view raw) {
  if (raw.size() < kLeastCompressed) return {};
  std::string out(ZSTD_compressBound(raw.size()), '\0');
  const std::size_t size = ZSTD_compress(out.data(), out.size(), raw.data(), raw.size(), kZstdLevel);
  if (ZSTD_isError(size) || size >= raw.size()) return {};
  out.resize(size);
  return out;
}

Result<Header> parse_header(std::string_view record, RecordKind kind, const Digest& key) {
  if (record.size() < kRecordOverhead)
    return damaged(kind, key, "only " + std::to_string(record.size()) + " bytes");
  ByteReader reader(record);
  if (reader.raw(kRecordMagic.size()) != kRecordMagic) return damaged(kind, key, "bad magic");
  if (const auto version = reader.number<std::uint16_t>(); version != kRecordVersion) {
    return damaged(kind, key,
                   "format version " + std::to_string(version) + " is not " + std::to_string(kRecordVersion));
  }
  if (reader.number<std::uint8_t>() != static_cast<std::uint8_t>(kind))
    return damaged(kind, key, "another kind");
  Header header;
  header.codec = reader.number<std::uint8_t>();
  if (header.codec > kCodecZstd) return damaged(kind, key, "unknown codec " + std::to_string(header.codec));
  if (const std::string_view stored_key = reader.raw(16); stored_key != key.view()) {
    return damaged(kind, key, "it was stored under another key");
  }
  header.raw_length = reader.number<std::uint64_t>();
  const auto stored_length = reader.number<std::uint64_t>();
  header.raw_digest = reader.raw(16);
  if (header.raw_length > kMaxRawBytes) return damaged(kind, key, "raw length is over the limit");
  if (stored_length != reader.remaining() - sizeof(std::uint64_t))
    return damaged(kind, key, "bad stored length");
  header.payload = reader.raw(stored_length);
  const std::string_view summed = record.substr(0, record.size() - sizeof(std::uint64_t));
  if (reader.number<std::uint64_t>() != checksum_of(summed)) return damaged(kind, key, "bad checksum");
  return header;
}

}  // namespace

const char* record_kind_name(RecordKind kind) {
  switch (kind) {
    case RecordKind::kEntry:
      return "entry";
    case RecordKind::kManifest:
      return "manifest";
    case RecordKind::kSummary:
      return "summary";
    case RecordKind::kUsage:
      return "usage";
    case RecordKind::kTombstones:
      return "tombstones";
    case RecordKind::kPin:
      return "pin";
    case RecordKind::kCandidates:
      return "candidates";
    case RecordKind::kState:
      return "state";
    case RecordKind::kLeaves:
      return "leaves";
    case RecordKind::kMiss:
      return "miss";
  }
  return "unknown";
}

Result<std::string> encode_record(RecordKind kind, const Digest& key, std::string_view raw) {
  if (raw.size() > kMaxRawBytes) {
    return invalid_argument(std::string(record_kind_name(kind)) + " record of " + std::to_string(raw.size()) +
                            " bytes is over the limit of " + std::to_string(kMaxRawBytes) +
                            "; it is not cached");
  }
  const std::string smaller = compressed(raw);
  const std::string_view payload = smaller.empty() ? raw : std::string_view(smaller);
  ByteWriter writer;
  writer.raw(kRecordMagic);
  writer.number(kRecordVersion);
  writer.number(static_cast<std::uint8_t>(kind));
  writer.number(smaller.empty() ? kCodecNone : kCodecZstd);
  writer.raw(key.view());
  writer.number<std::uint64_t>(raw.size());
  writer.number<std::uint64_t>(payload.size());
  writer.raw(digest_of(raw).view());
  writer.raw(payload);
  writer.number(checksum_of(writer.bytes()));
  return std::move(writer).take();
}

Result<std::string> decode_record(std::string_view record, RecordKind kind, const Digest& key) {
  REKINDLE_ASSIGN_OR_RETURN(const Header header, parse_header(record, kind, key));
  std::string raw;
  if (header.codec == kCodecNone) {
    if (header.payload.size() != header.raw_length) return damaged(kind, key, "raw and stored length differ");
    raw = header.payload;
  } else {
    // The frame's own claim is checked before it can make us allocate more than the record says.
    if (ZSTD_getFrameContentSize(header.payload.data(), header.payload.size()) != header.raw_length) {
      return damaged(kind, key, "the zstd frame has another length");
    }
    raw.resize(header.raw_length);
    const std::size_t size =
        ZSTD_decompress(raw.data(), raw.size(), header.payload.data(), header.payload.size());
    if (ZSTD_isError(size) || size != header.raw_length)
      return damaged(kind, key, "the zstd frame is broken");
  }
  if (digest_of(raw).view() != header.raw_digest) return damaged(kind, key, "bad content digest");
  return raw;
}

Result<std::size_t> claimed_record_size(std::string_view bytes) {
  if (bytes.size() < kRecordOverhead || !bytes.starts_with(kRecordMagic))
    return corruption("no record begins here");
  ByteReader reader(bytes.substr(kStoredLengthAt));
  const auto stored = reader.number<std::uint64_t>();
  if (stored > bytes.size() - kRecordOverhead) return corruption("a record is cut short");
  return kRecordOverhead + stored;
}

Result<Digest> claimed_record_key(std::string_view bytes) {
  if (bytes.size() < kRecordOverhead || !bytes.starts_with(kRecordMagic))
    return corruption("no record begins here");
  ByteReader reader(bytes.substr(kKeyAt));
  return read_digest(reader);
}

bool of_another_version(std::string_view bytes) {
  if (!bytes.starts_with(kRecordMagic)) return false;
  ByteReader reader(bytes.substr(kRecordMagic.size()));
  return reader.number<std::uint16_t>() != kRecordVersion && !reader.failed();
}

Digest read_digest(ByteReader& reader) {
  Digest digest;
  const std::string_view bytes = reader.raw(digest.bytes.size());
  if (!bytes.empty()) std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

}  // namespace rekindle
