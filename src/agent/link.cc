#include "agent/link.h"

#include <chrono>

namespace anychip::agent {

Result<std::unique_ptr<ThreadedLink>> ThreadedLink::create(const std::string& url) {
  std::unique_ptr<ThreadedLink> link(new ThreadedLink);
  for (Lane& lane : link->lanes_) {
    TRY(lane.client, net::Client::create({.url = url}));
  }
  for (Lane& lane : link->lanes_) {
    lane.thread = std::thread([raw = link.get(), &lane] { raw->run(lane); });
  }
  return link;
}

ThreadedLink::~ThreadedLink() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  for (Lane& lane : lanes_) {
    if (lane.client) lane.client->cancel();
    lane.has_job.notify_all();
  }
  for (Lane& lane : lanes_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
}

ThreadedLink::LaneIndex ThreadedLink::lane_of(const net::Request& request) {
  const std::string_view path = request.path();
  if (path == "/agent/v1/streams" || path.starts_with("/agent/v1/workdirs/")) return kStreams;
  // A poll that does not wait must not queue behind one that does.
  if (path == "/agent/v1/desired" && request.query("wait_s").value_or("0") != "0") return kPoll;
  return kReport;
}

int64_t ThreadedLink::begin(net::Request request, Duration timeout) {
  Lane& lane = lanes_[lane_of(request)];
  const std::lock_guard lock(mutex_);
  lane.jobs.push_back({++last_id_, std::move(request), timeout});
  lane.has_job.notify_one();
  return last_id_;
}

void ThreadedLink::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.has_job.wait(lock, [&] { return is_ending_ || !lane.jobs.empty(); });
    if (is_ending_) return;
    Job job = std::move(lane.jobs.front());
    lane.jobs.pop_front();
    lock.unlock();
    Result<net::Response> response = lane.client->send(job.request, job.timeout);
    lock.lock();
    replies_.push_back({job.id, std::move(response)});
    has_news_.notify_all();
  }
}

std::vector<ServerLink::Reply> ThreadedLink::take_replies() {
  const std::lock_guard lock(mutex_);
  return std::exchange(replies_, {});
}

void ThreadedLink::wait(Duration timeout) {
  std::unique_lock lock(mutex_);
  has_news_.wait_for(lock, std::chrono::microseconds(timeout.us),
                     [&] { return is_woken_ || !replies_.empty(); });
  is_woken_ = false;
}

void ThreadedLink::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  has_news_.notify_all();
}

}  // namespace anychip::agent
