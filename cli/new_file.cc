#include "cli/new_file.h"

#include <filesystem>
#include <fstream>

namespace rekindle::cli {

Status write_new_file(const std::string& path, const std::function<void(std::ostream&)>& write) {
  namespace fs = std::filesystem;
  std::error_code error;  // what cannot be made is found by the writing
  if (const fs::path directory = fs::path(path).parent_path(); !directory.empty())
    fs::create_directories(directory, error);
  if (fs::exists(path, error)) return invalid_argument(path + " is there already; name another");
  std::ofstream out(path);
  write(out);
  out.close();
  return out ? Status()
             : io_error(path + " cannot be written; is the directory writable, and the disk not full?");
}

}  // namespace rekindle::cli
