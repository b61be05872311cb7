//! The help: commands in their groups.

use clap::CommandFactory;

use super::Cli;

/// Every command by group, in the order in which they are shown. One that this build lacks is not shown.
pub(super) const GROUPS: [(&str, &[&str]); 7] = [
    ("Node", &["serve", "identity", "config", "doctor"]),
    ("Fleet", &["pair", "accept", "invite", "join", "connect", "peers", "ping", "send", "discover", "fleet"]),
    ("Leases", &["lease", "session"]),
    ("Work", &["delegate", "task", "send-session", "transfer", "hive"]),
    ("Ledger", &["ledger", "owner", "call", "check", "bridge", "adapter"]),
    ("Devices", &["router", "account", "device", "desktop", "rpc"]),
    ("Operate", &["journal", "logs", "metrics", "completions", "man"]),
];

/// The whole command tree, with its help in groups.
pub(super) fn command() -> clap::Command {
    let command = Cli::command();
    let mut groups = String::new();
    for (title, names) in GROUPS {
        let shown: Vec<_> = names.iter().filter_map(|name| command.find_subcommand(name)).collect();
        if shown.is_empty() {
            continue;
        }
        groups.push_str(&format!("{title}:\n"));
        for sub in shown {
            let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
            groups.push_str(&format!("  {:<12}  {about}\n", sub.get_name()));
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Everywhere:\n{{options}}{{after-help}}"
    ))
}
