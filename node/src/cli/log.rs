//! The log of a service: tracing, to stderr.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt;

use super::Globals;
use crate::config::{Config, Level, LogFormat};

/// Starts the log. `-v` and `-vv` say more than the configuration does, `--quiet` leaves the errors.
pub(super) fn start(globals: &Globals, config: &Config, colour: bool) {
    let level = level(globals, config.log);
    let log = fmt::Subscriber::builder().with_max_level(level).with_writer(std::io::stderr).with_ansi(colour);
    // A log that is there already, as an embedding program's, stays.
    let _ = match config.log_format {
        LogFormat::Text => tracing::subscriber::set_global_default(log.finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(log.json().finish()),
    };
}

fn level(globals: &Globals, configured: Level) -> LevelFilter {
    let configured = match configured {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    match globals {
        Globals { quiet: true, .. } => LevelFilter::ERROR,
        Globals { verbose: 0, .. } => configured,
        Globals { verbose: 1, .. } => configured.max(LevelFilter::DEBUG),
        Globals { .. } => LevelFilter::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::When;

    #[test]
    fn a_flag_says_more_than_the_file_and_never_less_but_for_quiet() {
        let globals = |verbose, quiet| Globals {
            home: None,
            config: None,
            json: false,
            verbose,
            quiet,
            color: When::Never,
        };
        assert_eq!(level(&globals(0, false), Level::Warn), LevelFilter::WARN);
        assert_eq!(level(&globals(1, false), Level::Warn), LevelFilter::DEBUG);
        assert_eq!(level(&globals(1, false), Level::Trace), LevelFilter::TRACE);
        assert_eq!(level(&globals(2, false), Level::Info), LevelFilter::TRACE);
        assert_eq!(level(&globals(0, true), Level::Trace), LevelFilter::ERROR);
    }
}
