//! What the agent changed in this guest, kept in a file so that any later agent, or `--stop`, can put it back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::GuestError;

/// The file's format; a file of another one is not touched.
const VERSION: u32 = 1;
/// The file's name in the run directory.
const FILE: &str = "guest-state.json";
/// Where settings are.
const SYSCTLS: &str = "/proc/sys";

/// The state file, and the settings that it is about.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    sysctls: PathBuf,
    kept: Kept,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    /// By their names, as `net.ipv4.tcp_frto`.
    sysctls: BTreeMap<String, Change>,
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    before: String,
    set: String,
}

impl State {
    /// What an agent before this one has left; empty if there was none.
    ///
    /// # Errors
    /// [`GuestError::State`] if the file cannot be read or is of another version: it may be the only trace of what was
    /// changed.
    pub fn load(run_dir: &Path) -> Result<Self, GuestError> {
        Self::at(run_dir.join(FILE), SYSCTLS.into())
    }

    fn at(file: PathBuf, sysctls: PathBuf) -> Result<Self, GuestError> {
        let empty = Kept { version: VERSION, sysctls: BTreeMap::new() };
        let refused = |why: String| GuestError::State { file: file.clone(), why };
        let kept = match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => empty,
            Err(error) => return Err(refused(error.to_string())),
        };
        if kept.version != VERSION {
            return Err(refused(format!("it has version {}, this evenkeel knows version {VERSION}", kept.version)));
        }
        Ok(Self { file, sysctls, kept })
    }

    /// Writes the file, so that it is there whole or as it was; removes it if there is nothing to put back.
    fn store(&self) -> Result<(), GuestError> {
        let new = self.file.with_extension("new");
        let write = || -> io::Result<()> {
            if self.kept.sysctls.is_empty() {
                return match fs::remove_file(&self.file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => Ok(()),
                };
            }
            let mut handle = File::create(&new)?;
            handle.write_all(serde_json::to_string_pretty(&self.kept)?.as_bytes())?;
            handle.sync_all()?;
            fs::rename(&new, &self.file)
        };
        write().map_err(|error| {
            // A part of it is of no use, and takes room.
            let _ = fs::remove_file(&new);
            GuestError::io(format!("cannot write {}", self.file.display()), error)
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sysctls.join(name.replace('.', "/"))
    }

    fn read(&self, name: &str) -> Result<String, GuestError> {
        let text = fs::read_to_string(self.path(name));
        text.map(|text| text.trim().to_owned()).map_err(|error| GuestError::io(format!("cannot read {name}"), error))
    }

    fn write(&self, name: &str, value: &str) -> Result<(), GuestError> {
        fs::write(self.path(name), value)
            .map_err(|error| GuestError::io(format!("cannot set {name} to {value}"), error))
    }

    /// Sets a setting, after it has noted in the file what it was.
    ///
    /// # Errors
    /// [`GuestError`]
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), GuestError> {
        let now = self.read(name)?;
        let ours = self.kept.sysctls.get(name).filter(|change| [&change.before, &change.set].contains(&&now));
        let before = ours.map_or(now.clone(), |change| change.before.clone());
        if now == value && ours.is_none() {
            return Ok(());
        }
        self.note(name, Some(Change { before, set: value.to_owned() }))?;
        self.write(name, value)
    }

    /// Notes a change in the file, or that there is none any more; if that fails, what was noted before stays noted.
    fn note(&mut self, name: &str, change: Option<Change>) -> Result<(), GuestError> {
        if self.kept.sysctls.get(name) == change.as_ref() {
            return Ok(());
        }
        let before = self.kept.clone();
        match change {
            Some(change) => self.kept.sysctls.insert(name.to_owned(), change),
            None => self.kept.sysctls.remove(name),
        };
        self.store().inspect_err(|_| self.kept = before)
    }

    /// Puts a setting back, unless somebody else has set it since. Returns its value now, if it was put back.
    ///
    /// # Errors
    /// [`GuestError`]: it can be tried again.
    pub fn put_back(&mut self, name: &str) -> Result<Option<String>, GuestError> {
        let Some(change) = self.kept.sysctls.get(name).cloned() else { return Ok(None) };
        let now = self.read(name)?;
        // It was set, or was back already when its note could not be removed.
        let is_ours = [&change.set, &change.before].contains(&&now);
        if !is_ours {
            tracing::info!(setting = name, "somebody else has set it: it stays");
        } else if now != change.before {
            self.write(name, &change.before)?;
        }
        self.note(name, None)?;
        Ok(is_ours.then_some(change.before))
    }

    /// What was changed: names, and what the settings were.
    pub fn changed(&self) -> BTreeMap<String, String> {
        self.kept.sysctls.iter().map(|(name, change)| (name.clone(), change.before.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, impl Fn() -> State) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("net/ipv4")).unwrap();
        fs::write(directory.path().join("net/ipv4/tcp_frto"), "2\n").unwrap();
        let root = directory.path().to_owned();
        (directory, move || State::at(root.join("state.json"), root.clone()).unwrap())
    }

    const NAME: &str = "net.ipv4.tcp_frto";

    #[test]
    fn a_setting_comes_back_whichever_agent_puts_it() {
        let (_directory, load) = place();
        let mut state = load();
        state.set(NAME, "0").unwrap();
        assert_eq!(state.read(NAME).unwrap(), "0");
        // A kill, and another agent with the same wish.
        let mut state = load();
        state.set(NAME, "0").unwrap();
        assert_eq!(state.changed()[NAME], "2");
        assert_eq!(state.put_back(NAME).unwrap().as_deref(), Some("2"));
        assert_eq!(state.read(NAME).unwrap(), "2");
        assert!(!state.file.exists() && state.put_back(NAME).unwrap().is_none());
    }

    #[test]
    fn what_is_as_it_should_be_is_not_noted() {
        let (_directory, load) = place();
        let mut state = load();
        state.set(NAME, "2").unwrap();
        assert!(state.changed().is_empty() && !state.file.exists());
    }

    #[test]
    fn what_somebody_else_has_set_stays() {
        let (_directory, load) = place();
        let mut state = load();
        state.set(NAME, "0").unwrap();
        state.write(NAME, "1").unwrap();
        assert_eq!(state.put_back(NAME).unwrap(), None);
        assert_eq!(state.read(NAME).unwrap(), "1");
    }

    #[test]
    fn what_cannot_be_noted_is_not_set_and_a_note_that_cannot_go_is_kept() {
        let (directory, load) = place();
        let mut state = load();
        let no_room = directory.path().join("state.new");
        fs::create_dir(&no_room).unwrap();
        assert!(state.set(NAME, "0").is_err());
        assert_eq!((state.read(NAME).unwrap().as_str(), state.changed().len()), ("2", 0));
        fs::remove_dir(&no_room).unwrap();
        fs::write(directory.path().join("net/ipv4/tcp_sack"), "1\n").unwrap();
        state.set("net.ipv4.tcp_sack", "0").unwrap();
        state.set(NAME, "0").unwrap();
        fs::create_dir(&no_room).unwrap();
        assert!(state.put_back(NAME).is_err());
        // It is back, and set again without a word in the file; then back for good.
        assert_eq!((state.read(NAME).unwrap().as_str(), load().changed()[NAME].as_str()), ("2", "2"));
        state.set(NAME, "0").unwrap();
        assert!(state.put_back(NAME).is_err());
        fs::remove_dir(&no_room).unwrap();
        assert_eq!(state.put_back(NAME).unwrap().as_deref(), Some("2"));
        assert_eq!(load().changed().into_keys().collect::<Vec<_>>(), ["net.ipv4.tcp_sack"]);
    }

    #[test]
    fn a_file_it_does_not_know_is_not_taken_for_empty() {
        let (directory, _) = place();
        for text in ["{", r#"{"version":2,"sysctls":{}}"#] {
            let file = directory.path().join("state.json");
            fs::write(&file, text).unwrap();
            let error = State::at(file, directory.path().to_owned()).unwrap_err();
            assert!(matches!(error, GuestError::State { .. }), "{error}");
        }
    }
}
