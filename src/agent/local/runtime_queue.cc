#include "agent/local/runtime_queue.h"

#include <algorithm>

namespace anychip::agent {

OperationQueue::OperationQueue(int workers) {
  for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { serve(); });
}

OperationQueue::~OperationQueue() { stop(); }

OperationId OperationQueue::begin(std::set<std::string> keys, std::string kind,
                                  std::function<Status()> work, bool is_reported) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({++last_id_, std::move(keys), std::move(kind), std::move(work), is_reported});
  changed_.notify_one();
  return last_id_;
}

std::vector<OperationDone> OperationQueue::take_done() {
  const std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

void OperationQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

OperationQueue::Entry* OperationQueue::next_locked() {
  std::set<std::string> taken, kinds;
  for (Entry& entry : entries_) {
    const bool is_free = std::none_of(entry.keys.begin(), entry.keys.end(),
                                      [&](const std::string& key) { return taken.contains(key); });
    const bool is_kind_free = entry.kind.empty() || !kinds.contains(entry.kind);
    if (!entry.is_running && is_free && is_kind_free) return &entry;
    taken.insert(entry.keys.begin(), entry.keys.end());
    if (!entry.kind.empty()) kinds.insert(entry.kind);
  }
  return nullptr;
}

void OperationQueue::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    Entry* entry = nullptr;
    changed_.wait(lock, [&] { return is_stopping_ || (entry = next_locked()) != nullptr; });
    if (is_stopping_) return;
    entry->is_running = true;
    const OperationId id = entry->id;
    const std::function<Status()> work = std::move(entry->work);
    const bool is_reported = entry->is_reported;
    lock.unlock();
    Status status = work();
    lock.lock();
    if (is_reported) done_.push_back({id, std::move(status)});
    std::erase_if(entries_, [&](const Entry& one) { return one.id == id; });
    changed_.notify_all();  // what waited for these objects
  }
}

}  // namespace anychip::agent
