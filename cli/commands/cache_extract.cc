#include <fmt/core.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/table.h"
#include "src/graph/onnx/export.h"
#include "src/pipeline/pipeline.h"

namespace rekindle::cli {
namespace {

class CacheExtract : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("id", prefix_, "Id of the entry, or the start of it")->required()->type_name("ID");
    app.add_option("-o,--output", output_, "File to write; - for stdout (default: <id>.onnx)")
        ->type_name("FILE");
    app.add_flag("--joint", joint_, "The differentiated and optimized graph instead of the exported one");
    flags_.declare(app);
  }

  int run() override {
    auto cache = flags_.open(CacheMode::kReadOnly);
    if (!cache.ok()) return fail(cache.error());
    auto id = (*cache)->find(prefix_);
    if (!id.ok()) return fail(id.error());
    auto model = read_model(**cache, *id);
    if (!model.ok()) return fail(model.error());
    if (output_.empty()) output_ = short_id(*id) + (joint_ ? ".joint.onnx" : ".onnx");
    if (const Status written = write(*model); !written.ok()) return fail(written.error());
    if (flags_.json) {
      print_json({{"id", id->hex()}, {"output", output_}, {"bytes", model->size()}});
    } else if (output_ != "-") {
      fmt::print("wrote {}, {}\n", output_, size_text(model->size()));
    }
    return kExitOk;
  }

 private:
  Result<std::string> read_model(ExportCache& cache, const Digest& id) const {
    REKINDLE_ASSIGN_OR_RETURN(const Entry entry, load_entry(cache, id));
    REKINDLE_ASSIGN_OR_RETURN(std::string bytes, section_of(entry, id, joint_ ? "joint" : "exported"));
    if (!joint_) return bytes;
    REKINDLE_ASSIGN_OR_RETURN(const auto joint, pipeline::parse_joint_graph(bytes));
    return graph::export_onnx(*joint.graph);
  }

  Status write(const std::string& model) const {
    if (output_ == "-" && flags_.json) {
      return invalid_argument("--json and the model cannot both go to stdout; name a file with -o");
    }
    std::ofstream file;
    if (output_ != "-") file.open(output_, std::ios::binary | std::ios::trunc);
    std::ostream& out = output_ == "-" ? std::cout : file;
    out.write(model.data(), static_cast<std::streamsize>(model.size())).flush();
    return out ? Status()
               : io_error("cannot write " + output_ + "; is there space, and may you write there?");
  }

  std::string prefix_, output_;
  bool joint_ = false;
  CacheFlags flags_;
};

REKINDLE_COMMAND(cache, extract, "Write the graph of one entry as an ONNX file", CacheExtract);

}  // namespace
}  // namespace rekindle::cli
