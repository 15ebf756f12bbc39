//! Exit codes. `--help` lists them.

use std::process::ExitCode;

/// How the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked.
    Ok = 0,
    /// It failed.
    Failed = 1,
    /// The arguments or the scenario are not valid.
    Usage = 2,
    /// This machine lacks something.
    Missing = 3,
    /// `--stop` could not put everything back.
    Stays = 4,
    /// Ctrl-C.
    Interrupted = 130,
}

/// The list in `--help`.
pub const HELP: &str = "\
Exit codes:
  0    done
  1    failed
  2    the arguments or the scenario are not valid
  3    this machine lacks something: a privilege, a program, a module
  4    --stop could not put everything back
  130  interrupted with Ctrl-C

Environment:
  EVENKEEL_LOG    what to log on standard error, as in `debug` or `evenkeel_lab=debug`
  EVENKEEL_CACHE  where the lab keeps kernels and images";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
