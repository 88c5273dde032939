#include "export_cache/formats/bundle.h"

#include "export_cache/files/files.h"
#include "src/base/bytes.h"

namespace rekindle {
namespace {

constexpr std::string_view kBundleMagic = "RKBUNDLE";
constexpr std::size_t kDigestBytes = 16;
// A bundle is read into memory as a whole; far more than the default limit of a cache is not one of ours.
constexpr std::uint64_t kMaxBundleBytes = std::uint64_t{16} << 30;

// A NewFile that knows the digest of what went in.
class SummedFile {
 public:
  explicit SummedFile(NewFile file) : file_(std::move(file)) {}
  Status write(std::string_view bytes) {
    digest_.update(bytes);
    return file_.write(bytes);
  }
  Status finish() {
    const Digest digest = digest_.finish();
    REKINDLE_RETURN_IF_ERROR(file_.write(digest.view()));
    return file_.publish();
  }

 private:
  NewFile file_;
  DigestStream digest_;
};

}  // namespace

Status write_bundle(const std::string& path, const std::vector<Digest>& ids,
                    const std::function<Result<std::string>(const Digest& id)>& object_of) {
  REKINDLE_ASSIGN_OR_RETURN(NewFile created, NewFile::create(path, 0644));
  SummedFile file(std::move(created));
  ByteWriter head;
  head.raw(kBundleMagic);
  head.number(kBundleVersion);
  head.number<std::uint64_t>(ids.size());
  REKINDLE_RETURN_IF_ERROR(file.write(head.bytes()));
  for (const Digest& id : ids) {
    REKINDLE_ASSIGN_OR_RETURN(const std::string object, object_of(id));
    ByteWriter size;
    size.number<std::uint64_t>(object.size());
    REKINDLE_RETURN_IF_ERROR(file.write(size.bytes()));
    REKINDLE_RETURN_IF_ERROR(file.write(object));
  }
  return file.finish();
}

Status read_bundle(const std::string& path, const std::function<Status(std::string_view object)>& visit) {
  auto read = read_file(path, kMaxBundleBytes);
  if (!read.ok()) return read.error();
  if (!*read) return not_found("there is no bundle " + path);
  const std::string_view bytes = **read;
  if (!bytes.starts_with(kBundleMagic))
    return corruption(path + " is not a bundle; make one with: rekindle cache pack");
  ByteReader reader(bytes.substr(kBundleMagic.size()));
  if (const auto version = reader.number<std::uint32_t>(); version != kBundleVersion && !reader.failed()) {
    return unsupported("bundle " + path + " has format version " + std::to_string(version) +
                       ", this Rekindle reads " + std::to_string(kBundleVersion) +
                       "; pack it again with this Rekindle");
  }
  const Error damaged = corruption("bundle " + path + " is damaged; copy or pack it again");
  if (bytes.size() < kDigestBytes) return damaged;
  const std::string_view summed = bytes.substr(0, bytes.size() - kDigestBytes);
  if (digest_of(summed).view() != bytes.substr(summed.size())) return damaged;
  std::vector<std::string_view> objects(reader.count(sizeof(std::uint64_t)));
  for (std::string_view& object : objects) object = reader.string();
  if (reader.failed() || reader.remaining() != kDigestBytes) return damaged;
  for (const std::string_view object : objects) REKINDLE_RETURN_IF_ERROR(visit(object));
  return {};
}

}  // namespace rekindle
