// Journals: a file of any bytes, and one whose records have sound lengths and checksums around any events.
// Readers and the fold of a writer must agree about each.
#include "export_cache/upkeep/journal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/bytes.h"
#include "tests/fuzz/fuzz.h"

using namespace rekindle;

namespace {

// One directory for the whole run, in memory where the system has such a place.
const std::string& directory() {
  static const std::string made = [] {
    std::string name =
        std::string(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + "/rekindle-fuzz-XXXXXX";
    fuzz::require(mkdtemp(name.data()) != nullptr, "a directory can be made");
    return name;
  }();
  return made;
}

void write_journal(std::string_view bytes) {
  const std::string path = directory() + "/1.journal1";
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  fuzz::require(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
                "the journal can be written");
  close(fd);
}

// The input cut into events of at most 100 bytes, each with its length and checksum.
std::string framed(std::string_view bytes) {
  ByteWriter writer;
  while (bytes.size() > 1) {
    const std::size_t size =
        std::min<std::size_t>(static_cast<unsigned char>(bytes[0]) % 101, bytes.size() - 1);
    const std::string_view body = bytes.substr(1, size);
    writer.number(static_cast<std::uint32_t>(size));
    writer.raw(body);
    writer.number(checksum_of(body));
    bytes.remove_prefix(size + 1);
  }
  return std::move(writer).take();
}

void check(std::string_view journal) {
  write_journal(journal);
  Usage read, folded;
  merge_journals(directory(), read);
  {
    JournalFold fold(directory(), folded);
    Usage again = folded;
    merge_journals(directory(), again);  // everything is folded: nothing may count twice
    fuzz::require_equal(*encode_usage(again), *encode_usage(folded), "folded events count once");
    fold.remove_files();
  }
  folded.folded.clear();
  fuzz::require_equal(*encode_usage(read), *encode_usage(folded), "readers and writers count the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::view(data, size);
  check(bytes);
  check(framed(bytes));
  return 0;
}
