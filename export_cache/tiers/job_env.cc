#include "export_cache/tiers/job_env.h"

#include <rocksdb/env.h>

#include <mutex>
#include <thread>
#include <vector>

namespace rekindle {
namespace {

class JobEnv : public rocksdb::EnvWrapper {
 public:
  JobEnv() : EnvWrapper(rocksdb::Env::Default()) {}
  ~JobEnv() override {
    for (std::thread& thread : threads_) thread.join();  // a closed database schedules no more
  }

  static const char* kClassName() { return "RekindleJobs"; }
  const char* Name() const override { return kClassName(); }

  // Runs a job at once, on a thread of its own; a database has few.
  void Schedule(void (*job)(void*), void* argument, Priority, void*, void (*)(void*)) override {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back(job, argument);
  }
  int UnSchedule(void*, Priority) override { return 0; }  // none is waiting
  unsigned int GetThreadPoolQueueLen(Priority) const override { return 0; }
  int ReserveThreads(int, Priority) override { return 0; }
  int ReleaseThreads(int, Priority) override { return 0; }
  void SetBackgroundThreads(int, Priority) override {}
  int GetBackgroundThreads(Priority) override { return 1; }
  void IncBackgroundThreadsIfNeeded(int, Priority) override {}

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::shared_ptr<rocksdb::Env> make_job_env() { return std::make_shared<JobEnv>(); }

}  // namespace rekindle
