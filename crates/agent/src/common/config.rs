//! Reads a configuration file.

use std::path::Path;

use evenkeel_settings::ConfigError;

/// Reads a file and checks it with `parse`.
///
/// # Errors
/// [`ConfigError`] with all that is needed to mend the file.
pub(crate) fn read<T>(
    file: &Path,
    parse: impl FnOnce(&str, &Path) -> Result<T, ConfigError>,
) -> Result<T, ConfigError> {
    let (text, _) = crate::file::read(file).map_err(|source| ConfigError::Read { file: file.to_owned(), source })?;
    parse(&text, file)
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::host::Config;

    use super::*;
    use crate::host::HostError;

    #[test]
    fn a_file_that_is_not_there_is_named_and_what_to_do() {
        let error = read(Path::new("/nonexistent/host.toml"), Config::parse).unwrap_err();
        assert!(error.to_string().starts_with("cannot read /nonexistent/host.toml: No such file"), "{error}");
        assert!(HostError::from(error).help().unwrap().contains("--print-config"));
    }
}
