// The program in a simulated container: what python/anychip does, over virtual time.
#include <algorithm>

#include <fmt/format.h>

#include "base/json.h"
#include "sim/runtime.h"

namespace anychip::sim {
namespace {

using agent::ContainerPhase;

int64_t option(const std::vector<std::string>& command, std::string_view name, int64_t otherwise) {
  for (size_t i = 0; i + 1 < command.size(); ++i) {
    if (command[i] == name) return std::strtoll(command[i + 1].c_str(), nullptr, 10);
  }
  return otherwise;
}

std::string variable(const agent::ContainerSpec& spec, const std::string& name) {
  const auto found = spec.environment.find(name);
  return found == spec.environment.end() ? std::string() : found->second;
}

}  // namespace

double loss_at(int64_t step) {
  return 1.0 + 400.0 / static_cast<double>(80 + step) +
         static_cast<double>((step * 7919) % 101) / 2000.0;
}

LegTruth& SimRuntime::truth_of(const Container& container) {
  return parts_.truth.legs.at(container.spec.instance.text);
}

SimRuntime::Disk* SimRuntime::checkpoint_disk(const Container& container) {
  for (const agent::VolumeMount& mount : container.spec.volumes) {
    const auto disk = volumes_.find(mount.volume);
    if (mount.path == "/checkpoints" && disk != volumes_.end()) return &disk->second;
  }
  return nullptr;
}

SimRuntime::Container* SimRuntime::find_live(const InstanceId& instance, int64_t life) {
  const auto found = containers_.find(instance);
  const bool is_it = found != containers_.end() && found->second.life == life &&
                     found->second.phase != ContainerPhase::kExited;
  return is_it ? &found->second : nullptr;
}

// The two rules nothing may ever break: one trainer per run, one container per device.
void SimRuntime::check_alone(const Container& container) {
  for (const auto& [id, other] : parts_.truth.legs) {
    if (other.ended || id == container.spec.instance.text) continue;
    if (other.run_id == variable(container.spec, "ANYCHIP_RUN")) {
      parts_.truth.violated(fmt::format("two live containers of run {}: {} on {} and {} on {}",
                                        other.run_id, id, other.node,
                                        container.spec.instance.text, name_));
    }
    if (other.node != name_) continue;
    for (const std::string& device : container.spec.device_ids) {
      if (std::ranges::find(other.device_ids, device) != other.device_ids.end()) {
        parts_.truth.violated(fmt::format("device {} of {} is used by {} and {}", device, name_, id,
                                          container.spec.instance.text));
      }
    }
  }
}

void SimRuntime::launch(Container& container) {
  const agent::ContainerSpec& spec = container.spec;
  container.life = ++last_life_;
  container.started = parts_.clock.mono_now();
  container.steps_total = option(spec.command, "--steps", 100);
  container.save_every = option(spec.command, "--save-every", 20);
  container.step_time = milliseconds(option(spec.command, "--step-ms", 300));
  check_alone(container);
  LegTruth& truth = parts_.truth.legs[spec.instance.text];
  if (truth.generation == spec.generation) {
    parts_.truth.violated(fmt::format("instance {} was started twice", spec.instance.text));
  }
  truth = LegTruth{.run_id = variable(spec, "ANYCHIP_RUN"),
                   .leg_id = variable(spec, "ANYCHIP_LEG"),
                   .instance_id = spec.instance.text,
                   .node = name_,
                   .device_ids = spec.device_ids,
                   .generation = spec.generation,
                   .started = container.started,
                   .ended = {},
                   .log = {},
                   .metrics = {}};
  if (truth.run_id.empty() || truth.leg_id.empty()) {
    parts_.truth.violated("ANYCHIP_RUN or ANYCHIP_LEG is missing in " + spec.instance.text);
  }
  folders_[spec.instance] = &truth;
  const int64_t life = container.life;
  const InstanceId instance = spec.instance;
  parts_.queue.after(milliseconds(50), [this, instance, life] {
    if (Container* live = find_live(instance, life)) live->phase = ContainerPhase::kRunning;
    changed();
  });
  const auto load_ms = static_cast<int64_t>(500 + parts_.random.below(2500));
  parts_.queue.after(milliseconds(50 + load_ms), [this, instance, life] { begin_steps(instance, life); });
}

void SimRuntime::begin_steps(const InstanceId& instance, int64_t life) {
  Container* container = find_live(instance, life);
  if (container == nullptr) return;
  const Disk* disk = checkpoint_disk(*container);
  container->step = disk == nullptr ? 0 : disk->checkpoint_step;
  truth_of(*container).resumed_from = container->step;
  write_log(*container, fmt::format("resuming after step {} on {}", container->step,
                                    variable(container->spec, "ANYCHIP_CHIP")));
  write_metrics(*container, {{"event", "start"},
                             {"backend", variable(container->spec, "ANYCHIP_BACKEND")},
                             {"chip", variable(container->spec, "ANYCHIP_CHIP")},
                             {"device", "sim:0"},
                             {"accelerator", "sim"},
                             {"parameter_device", "sim:0"},
                             {"torch", "2.13.0"},
                             {"params", 1'000'000},
                             {"step", container->step}});
  if (stops_here(*container)) return;
  parts_.queue.after(container->step_time, [this, instance, life] { do_step(instance, life); });
}

// At a step boundary: finished, or asked to stop.
bool SimRuntime::stops_here(Container& container) {
  const int64_t step = container.step;
  if (step >= container.steps_total) {
    save_checkpoint(container);
    write_metrics(container, {{"event", "sample"}, {"step", step}, {"prompt", "床前"}, {"text", "明月光"}});
    write_metrics(container, {{"event", "device_stats"}, {"executions", step}, {"compiles", 1},
                              {"host_to_device_bytes", 1}, {"device_to_host_bytes", 1},
                              {"peak_bytes", 1 << 20}});
    write_metrics(container, {{"event", "finished"}, {"step", step}});
    write_log(container, "finished");
    end(container, 0, false);
    return true;
  }
  const bool is_at_step = container.stop_at_step && step >= *container.stop_at_step;
  if (!container.is_term_sent && !is_at_step) return false;
  if (parts_.faults.planted != Planted::kNoCheckpointOnTerm) save_checkpoint(container);
  write_metrics(container, {{"event", "stopped"}, {"step", step},
                            {"by", container.is_term_sent ? "SIGTERM" : "stop_at_step"}});
  end(container, 75, false);
  return true;
}

void SimRuntime::do_step(const InstanceId& instance, int64_t life) {
  Container* container = find_live(instance, life);
  if (container == nullptr) return;
  const int64_t step = ++container->step;
  LegTruth& truth = truth_of(*container);
  if (truth.first_step == 0) truth.first_step = step;
  truth.last_step = step;
  const double step_s = container->step_time.seconds();
  write_metrics(*container, {{"step", step},
                             {"loss", loss_at(step)},
                             {"step_s", step_s},
                             {"tokens_s", 4096 / step_s},
                             {"rss_bytes", 100 << 20},
                             {"peak_rss_bytes", 120 << 20}});
  if (step % 10 == 0) write_log(*container, fmt::format("step {} loss {:.4f} 春眠不觉晓", step, loss_at(step)));
  if (stops_here(*container)) return;
  if (container->save_every > 0 && step % container->save_every == 0) save_checkpoint(*container);
  parts_.queue.after(container->step_time, [this, instance, life] { do_step(instance, life); });
}

void SimRuntime::save_checkpoint(Container& container) {
  Disk* disk = checkpoint_disk(container);
  if (disk == nullptr) return;
  if (container.step < disk->checkpoint_step) {
    parts_.truth.violated(fmt::format("{} overwrites checkpoint {} with {}",
                                      container.spec.instance.text, disk->checkpoint_step,
                                      container.step));
  }
  disk->checkpoint_step = container.step;
  write_metrics(container, {{"event", "checkpoint"}, {"step", container.step}, {"save_s", 0.01},
                            {"path", fmt::format("/checkpoints/step-{}", container.step)}});
}

void SimRuntime::end(Container& container, int exit_code, bool is_by_fault) {
  container.phase = ContainerPhase::kExited;
  container.exit_code = exit_code;
  container.ended = parts_.clock.mono_now();
  LegTruth& truth = truth_of(container);
  truth.ended = container.ended;
  truth.exit_code = exit_code;
  truth.is_by_fault = is_by_fault;
  parts_.trace.add(name_, fmt::format("exit {} {} at step {}", exit_code,
                                      container.spec.instance.text, container.step));
  changed();
}

void SimRuntime::write_metrics(const Container& container, json::object line) {
  line["t"] = static_cast<double>(parts_.clock.wall_now().us) / 1e6;
  truth_of(container).metrics += json::serialize(line) + "\n";
}

void SimRuntime::write_log(const Container& container, const std::string& line) {
  truth_of(container).log += line + "\n";
}

Status SimRuntime::write_control(const InstanceId& instance, std::string_view json_text) {
  const auto found = containers_.find(instance);
  if (found == containers_.end()) return fail(Code::kNotFound, "no_such_container", "not here");
  TRY(const json::value control, json::parse(json_text));
  found->second.stop_at_step.reset();
  if (control.is_object() && control.get_object().contains("stop_at_step")) {
    found->second.stop_at_step = json::int_at(control.get_object(), "stop_at_step");
  }
  return {};
}

}  // namespace anychip::sim
