#include "cli/help.h"

#include <fmt/format.h>

namespace anychip::cli {

// Groups appear in the order of their first command.
const std::vector<CommandHelp>& command_helps() {
  static const std::vector<CommandHelp> kHelps = {
      {"up", "This machine", "start server and agent here",
       "Checks what this machine must have, then starts server and agent as two processes of their own and waits until "
       "they are ready. The first start makes an account \"me\" with ¥10. Called again it says that all is up already, "
       "or starts what is missing.",
       "  anychip up\n  anychip up --port 8080 --pool-gib 40\n  ANYCHIP_DATA=/data/lab anychip up"},
      {"down", "This machine", "stop server and agent, or remove one run",
       "Without a name it ends server and agent; running containers go on and are found again by the next `up`. With "
       "--all every container, mount and loop device of this data folder goes too. With a run's name it stops that run "
       "and deletes it with its disks and logs.",
       "  anychip down\n  anychip down --all && rm -rf \"$ANYCHIP_DATA\"\n  anychip down demo"},
      {"doctor", "This machine", "check what this machine must have, and how to get it",
       "One line for each prerequisite, with the way out when it is missing. Changes nothing. Exit status 6 when "
       "something is missing.",
       "  anychip doctor\n  anychip doctor -o json"},
      {"account", "What there is", "show the account; make another",
       "Shows the balance. `new NAME` makes an account with ¥10 (on the server's machine) and uses it from then on; "
       "`use NAME` goes back to an earlier one.",
       "  anychip account\n  anychip account new alice\n  anychip account use me"},
      {"offer", "What there is", "chips that can be had now, with price", "One line per chip and node. Prices of simulated "
       "chips are the list prices of the chips they simulate.",
       "  anychip offer\n  anychip offer tpu-sim"},
      {"chip", "What there is", "every chip of the catalogue", "Also chips that no node here has.",
       "  anychip chip\n  anychip chip h100-sxm -o json"},
      {"image", "What there is", "images and their variants", "A variant serves one back end.", "  anychip image pytorch"},
      {"template", "What there is", "ready tasks", "A template gives image, command, folder, chip and sizes.",
       "  anychip template\n  anychip template tang-poem-gpt -o json"},
      {"node", "What there is", "machines, their devices and images", "", "  anychip node"},
      {"run", "Runs", "start a command on a chip",
       "From a template, a task file (-f) or a command after `--`. Without a template the current folder (or --workdir) is "
       "packed by content, .gitignore respected, and becomes /workspace. The word after --backend in the command is "
       "replaced by the chip's back end, so the same command runs everywhere. Options win over the file.",
       "  anychip run --name demo --template tang-poem-gpt --chip cpu\n"
       "  anychip run --name mine --image pytorch --chip tpu-sim --watch -- python train.py --backend cpu\n"
       "  anychip run -f anychip.yaml --dry-run"},
      {"ps", "Runs", "list runs with state, step, loss and live cost", "--watch draws it anew each second.",
       "  anychip ps\n  anychip ps --watch\n  anychip ps --state running -o json"},
      {"show", "Runs", "everything about one run", "Its state, command, cost and legs.", "  anychip show demo"},
      {"logs", "Runs", "what a run printed", "-f follows until the run has ended, across switches.",
       "  anychip logs -f demo\n  anychip logs demo --leg 1"},
      {"metrics", "Runs", "loss, speed and memory by step", "A step that was repeated shows its last leg.",
       "  anychip metrics demo --after-step 100 -o json"},
      {"events", "Runs", "what happened to a run, in words", "-f follows until the run has ended.",
       "  anychip events -f demo"},
      {"wait", "Runs", "wait for a step, a state or the end",
       "Exit status 0 when it is reached, 1 when the run ended otherwise, 9 when --timeout passed.",
       "  anychip wait demo --step 100 --timeout 10m\n  anychip wait demo --state finished"},
      {"stop", "Runs", "checkpoint and stop a run", "The command gets SIGTERM, writes its checkpoint and exits; disks stay.",
       "  anychip stop demo --wait"},
      {"switch", "Runs", "move a run to another chip; nothing is lost",
       "Prepares the new chip while the old one trains on, then checkpoint, snapshot, resume at the very next step, "
       "verify. If the new chip fails or the loss leaves its band, the run falls back by itself. With --wait the eight "
       "steps are shown as they happen.",
       "  anychip switch demo --to tpu-sim --wait\n  anychip switch demo --to ascend-910b:8 --at-step 500\n"
       "  anychip switch demo --cancel\n  anychip switch demo --list"},
      {"compare", "Runs", "speed, memory, cost and loss of each chip",
       "As a table, as JSON, or as one HTML file that needs no network. The loss is compared with --against RUN, else with "
       "the run that was started with --reference-of. --input renders a saved JSON again.",
       "  anychip compare demo\n  anychip compare demo --html demo.html\n  anychip compare demo -o json | jq .parity"},
      {"instance", "Runs", "rented chips with their disks", "", "  anychip instance list\n  anychip instance show ins_01jd..."},
      {"volume", "Runs", "disks", "", "  anychip volume"},
      {"snapshot", "Runs", "points of disks", "", "  anychip snapshot"},
      {"server", "Processes and shell", "the API server in the foreground (`up` starts it)", "",
       "  anychip server --port 8080"},
      {"agent", "Processes and shell", "the node's agent in the foreground (`up` starts it)", "", "  anychip agent"},
      {"completion", "Processes and shell", "completion for bash, zsh or fish", "",
       "  source <(anychip completion bash)\n  anychip completion fish > ~/.config/fish/completions/anychip.fish"},
      {"version", "Processes and shell", "the version", "", "  anychip version"},
      {"help", "Processes and shell", "this page, or one command's", "", "  anychip help switch"},
  };
  return kHelps;
}

const CommandHelp* help_of(std::string_view command) {
  for (const CommandHelp& help : command_helps()) {
    if (help.name == command) return &help;
  }
  return nullptr;
}

std::string overview() {
  std::string out =
      "anychip: rent any chip, move a running training to another one, see what both cost.\n\n"
      "  anychip COMMAND [OPTIONS]      anychip help COMMAND\n";
  std::string_view group;
  for (const CommandHelp& help : command_helps()) {
    if (help.group != group) out += fmt::format("\n{}\n", help.group);
    group = help.group;
    out += fmt::format("  {:<11} {}\n", help.name, help.summary);
  }
  out +=
      "\nEverywhere\n"
      "  -o table|json   data as a table or as the API's JSON, on stdout; talk goes to stderr\n"
      "  --data DIR      the data folder, and so the server (also: ANYCHIP_DATA)\n"
      "  --lang en|zh    language of the server's messages (also: LC_ALL, LANG)\n"
      "\nExit status: 0 ok, 1 failed, 2 cancelled, 3 usage, 4 auth, 5 not found, 6 conflict, 7 funds, 8 no capacity, 9 timeout.\n"
      "Environment: ANYCHIP_DATA, ANYCHIP_URL and ANYCHIP_TOKEN (another server), NO_COLOR.\n";
  return out;
}

}  // namespace anychip::cli
