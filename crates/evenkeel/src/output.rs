//! Results on standard output.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::error::CliError;
use crate::exit::Exit;

/// Prints text as it is. A reader that has had enough (`| head`) is no error.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::new(Exit::Failed, format!("cannot write the result: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON, indented.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| CliError::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
    print(&(text + "\n"))
}
