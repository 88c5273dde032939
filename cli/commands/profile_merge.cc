#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "cli/cache_flags.h"
#include "cli/command.h"
#include "cli/new_file.h"
#include "cli/table.h"

namespace rekindle::cli {
namespace {

// A trace as Profile.save_trace writes it (python/rekindle/timing/trace.py).
struct Trace {
  std::string file;
  std::int64_t rank = 0;
  std::int64_t began_ns = 0;  // since 1970; the events' times count from here, in microseconds
  Json events;
};

bool is_event(const Json& event) {
  const auto has = [&](const char* name, bool (Json::*is)() const) {
    return !event.contains(name) || (event[name].*is)();
  };
  return event.is_object() && has("name", &Json::is_string) && has("cat", &Json::is_string) &&
         has("ts", &Json::is_number) && has("dur", &Json::is_number);
}

Result<Trace> read_trace(const std::string& file) {
  std::ifstream in(file);
  if (!in) return io_error(file + " cannot be read");
  const Json found = Json::parse(in, nullptr, false);
  const auto wrong = [&](const std::string& what) {
    return invalid_argument(file + " " + what +
                            "; profile merge takes files that rekindle.profile(...).save_trace wrote");
  };
  if (found.is_discarded()) return wrong("is no JSON");
  if (!found.is_object() || !found.contains("rekindle") || !found.contains("traceEvents"))
    return wrong("has no rank");
  const Json &about = found["rekindle"], &events = found["traceEvents"];
  const auto is_whole = [&](const char* name) {
    return about.contains(name) && about[name].is_number_integer();
  };
  if (!about.is_object() || !is_whole("rank") || !is_whole("began_ns")) return wrong("has no rank");
  if (!events.is_array() || !std::ranges::all_of(events, is_event)) return wrong("has events that are none");
  return Trace{file, about["rank"], about["began_ns"], events};
}

constexpr std::string_view kPhase = "rekindle.profile: ";

// Milliseconds of each of a rank's ranges around a forward, or a backward.
std::vector<double> phase_times(const Trace& trace, std::string_view phase) {
  std::vector<double> found;
  for (const Json& event : trace.events) {
    if (event.value("name", "") == std::string(kPhase) + std::string(phase) &&
        event.value("cat", "") == "cpu")
      found.push_back(event.value("dur", 0.0) / 1e3);
  }
  return found;
}

std::string median_text(std::vector<double> times) {
  if (times.empty()) return "-";
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  return fmt::format("{:.3f}", times[times.size() / 2]);
}

class ProfileMerge : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option("traces", files_, "Traces of the ranks")->type_name("TRACE")->required();
    app.add_option("-o,--output", output_, "The new trace")->type_name("FILE")->required();
    app.add_flag("--json", json_, "Print one JSON object");
  }

  int run() override {
    std::map<std::int64_t, Trace> ranks;
    for (const std::string& file : files_) {
      auto found = read_trace(file);
      if (!found.ok()) return fail(found.error());
      const auto [at, is_new] = ranks.emplace(found->rank, *found);
      if (!is_new)
        return fail(invalid_argument(fmt::format("{} and {} are both of rank {}; name one trace of each rank",
                                                 at->second.file, file, found->rank)));
    }
    const Json events = merged(ranks);
    if (const Status written = write(events); !written.ok()) return fail(written.error());
    if (json_) print_json({{"file", output_}, {"ranks", ranks.size()}, {"events", events.size()}});
    if (!json_) print_ranks(ranks, events.size());
    return kExitOk;
  }

 private:
  // All events, whose times count from where the first rank begins.
  static Json merged(const std::map<std::int64_t, Trace>& ranks) {
    std::int64_t first = ranks.begin()->second.began_ns;
    for (const auto& [_, trace] : ranks) first = std::min(first, trace.began_ns);
    Json all = Json::array();
    for (const auto& [_, trace] : ranks) {
      for (Json event : trace.events) {
        if (event.contains("ts"))
          event["ts"] = event["ts"].get<double>() + static_cast<double>(trace.began_ns - first) / 1e3;
        all.push_back(std::move(event));
      }
    }
    return all;
  }

  Status write(const Json& events) const {
    const Json trace = {{"traceEvents", events}, {"displayTimeUnit", "ms"}};
    return write_new_file(output_, [&](std::ostream& out) { out << trace.dump() << '\n'; });
  }

  void print_ranks(const std::map<std::int64_t, Trace>& ranks, std::size_t events) const {
    std::vector<std::vector<std::string>> rows = {{"RANK", "STEPS", "FORWARD ms", "BACKWARD ms"}};
    for (const auto& [rank, trace] : ranks) {
      const auto forward = phase_times(trace, "forward"), backward = phase_times(trace, "backward");
      rows.push_back({std::to_string(rank), std::to_string(forward.size()), median_text(forward),
                      median_text(backward)});
    }
    print_table(rows);
    fmt::print("{}: {} events of {} ranks, for https://ui.perfetto.dev or chrome://tracing\n", output_,
               events, ranks.size());
  }

  std::vector<std::string> files_;
  std::string output_;
  bool json_ = false;
};

REKINDLE_COMMAND(profile, merge, "Put the traces of ranks side by side", ProfileMerge);

}  // namespace
}  // namespace rekindle::cli
