//! What packages hold: the lists in Cargo.toml, held against the units, the guest module and the scripts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

const GENERATED: &str = "../../target/package/";

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn top() -> PathBuf {
    crate_dir().join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = top().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn metadata() -> Table {
    let manifest: Table = read("crates/evenkeel/Cargo.toml").parse().unwrap();
    manifest["package"]["metadata"].as_table().unwrap().clone()
}

/// A list of files: where each comes from and where it goes.
fn list(deb: &Value) -> Vec<(String, String)> {
    let text = |asset: &Value, key: &str| asset[key].as_str().unwrap().to_owned();
    deb["assets"].as_array().unwrap().iter().map(|asset| (text(asset, "source"), text(asset, "dest"))).collect()
}

/// Files of the source tree that a list's patterns stand for, each with where it goes.
fn expanded(list: &[(String, String)]) -> BTreeSet<(PathBuf, String)> {
    let mut files = BTreeSet::new();
    for (source, dest) in list.iter().filter(|(source, _)| !source.starts_with(GENERATED)) {
        let source = crate_dir().join(source);
        let (folder, pattern) = (source.parent().unwrap(), source.file_name().unwrap().to_str().unwrap());
        let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
        let found: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| {
                if pattern.contains('*') { name.starts_with(start) && name.ends_with(end) } else { name == pattern }
            })
            .collect();
        assert!(!found.is_empty(), "no file is {}", source.display());
        for name in found {
            let dest = if dest.ends_with('/') { format!("{dest}{name}") } else { dest.clone() };
            files.insert((folder.join(name).canonicalize().unwrap(), dest));
        }
    }
    files
}

#[test]
fn units_and_what_they_need_are_in_the_list() {
    let metadata = metadata();
    let list = list(&metadata["deb"]);
    let files = expanded(&list);
    let dests: Vec<&str> = list.iter().map(|(_, dest)| dest.as_str()).collect();
    for unit in std::fs::read_dir(top().join("packaging/systemd")).unwrap() {
        let unit = unit.unwrap().path().canonicalize().unwrap();
        let name = unit.file_name().unwrap().to_str().unwrap();
        assert!(files.contains(&(unit.clone(), format!("/usr/lib/systemd/system/{name}"))), "{name}");
        let text = read(&unit);
        let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let program = command.split(' ').next().unwrap();
        assert!(dests.contains(&program), "{name} runs {program}, which no package has");
        let agent = name.trim_start_matches("evenkeel-").trim_end_matches(".service");
        assert!(dests.contains(&format!("/etc/evenkeel/{agent}.toml").as_str()), "{name} has no configuration");
        let runtime = text.lines().find_map(|line| line.strip_prefix("RuntimeDirectory=")).unwrap();
        assert!(read("packaging/evenkeel.tmpfiles").contains(&format!("d /run/{runtime} ")), "{name}: {runtime}");
        for script in ["prerm", "postrm"] {
            assert!(read(format!("packaging/scripts/{script}")).contains(name), "{script} does not know {name}");
        }
    }
    // The folder that docs/guest.md and the lab's examples have sockets in.
    assert!(read("packaging/evenkeel.tmpfiles").contains("d /run/evenkeel/vms "));
}

/// rpm leaves folders behind: the script removes those that are evenkeel's alone, the innermost first.
#[test]
fn folders_of_our_own_go_with_the_package() {
    let script = read("packaging/scripts/postrm");
    let list = list(&metadata()["deb"]);
    let named: Vec<&str> = script.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
    let mut folders = BTreeSet::new();
    for (_, dest) in &list {
        let folder = Path::new(dest.rsplit_once('/').unwrap().0);
        folders.extend(folder.ancestors().filter(|folder| folder.iter().any(|part| part == "evenkeel")));
    }
    assert!(folders.len() > 3, "{folders:?}");
    for folder in folders {
        let at = |path: &Path| named.iter().position(|word| Path::new(word) == path);
        let place = at(folder).unwrap_or_else(|| panic!("postrm leaves {}", folder.display()));
        let around = folder.parent().and_then(at);
        assert!(around.is_none_or(|around| around > place), "{} is not empty then", folder.display());
    }
}

/// What the links of a page name, without headings.
fn links(page: &str) -> Vec<String> {
    // Every other part is an example.
    let prose: String = page.split("\n```").step_by(2).collect();
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next().map(str::to_owned));
    links.filter(|link| !link.is_empty() && !link.contains(':') && !link.contains(char::is_whitespace)).collect()
}

/// Links to sources, scenarios and kept runs are for those who have the repository.
#[test]
fn links_between_pages_lead_somewhere_in_a_package() {
    let metadata = metadata();
    let docs = top().join("docs").canonicalize().unwrap();
    let mut followed = 0;
    for variant in [&metadata["deb"], &metadata["deb"]["variants"]["pvtcp-dkms"]] {
        let files = expanded(&list(variant));
        for (page, dest) in files.iter().filter(|(page, _)| page.extension().is_some_and(|kind| kind == "md")) {
            for link in links(&read(page)) {
                let target = page.parent().unwrap().join(&link).canonicalize().unwrap();
                let is_page = target.extension().is_some_and(|kind| kind == "md") || target.starts_with(&docs);
                if !is_page || target == docs.join("results/data") {
                    continue;
                }
                followed += 1;
                let from = Path::new(dest).parent().unwrap();
                let found = files.iter().find(|(file, _)| *file == target).map(|(_, dest)| Path::new(dest));
                let found = found.unwrap_or_else(|| panic!("{dest} links to {link}, which the package has not"));
                // The folders lie to each other as in the repository.
                let mut there = from.to_owned();
                for part in link.split('/') {
                    match part {
                        ".." => assert!(there.pop()),
                        part => there.push(part),
                    }
                }
                assert_eq!(there, found, "{dest}: {link}");
            }
        }
    }
    assert!(followed > 500, "{followed}");
}

#[test]
fn configurations_are_not_overwritten() {
    let metadata = metadata();
    for variant in [&metadata["deb"], &metadata["deb"]["variants"]["pvtcp-dkms"]] {
        for asset in variant["assets"].as_array().unwrap() {
            let is_configuration = asset["dest"].as_str().unwrap().starts_with("/etc/");
            let noreplace = asset.get("config").and_then(Value::as_str) == Some("noreplace");
            assert_eq!(is_configuration, noreplace, "{asset}");
        }
    }
}

#[test]
fn the_modules_package_is_what_install_dkms_copies() {
    let place = tempfile::tempdir().unwrap();
    let destination = format!("DESTDIR={}", place.path().display());
    let module = top().join("kernel/guest/pvtcp");
    let made = Command::new("make").arg("-C").arg(module).args(["install-dkms", &destination]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut copied = BTreeSet::new();
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                copied.insert(format!("/{}", path.strip_prefix(place.path()).unwrap().display()));
            }
        }
    }
    let files = expanded(&list(&metadata()["deb"]["variants"]["pvtcp-dkms"]));
    let packed: BTreeSet<String> = files.into_iter().map(|(_, d)| d).filter(|d| d.starts_with("/usr/src/")).collect();
    assert_eq!(packed, copied);
}

#[test]
fn the_modules_version_is_the_same_everywhere() {
    let conf = read("kernel/guest/pvtcp/dkms.conf");
    let version = conf.lines().find_map(|l| l.strip_prefix("PACKAGE_VERSION=")).unwrap().trim_matches('"');
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert!(read("kernel/guest/pvtcp/main.c").contains(&format!("MODULE_VERSION(\"{version}\")")));
    for script in ["postinst", "prerm"] {
        assert!(read(format!("packaging/dkms/{script}")).contains(&format!("\nversion={version}\n")), "{script}");
    }
}

#[test]
fn both_kinds_of_packages_have_the_same_scripts() {
    let metadata = metadata();
    let names = [("post_install", "postinst"), ("pre_uninstall", "prerm"), ("post_uninstall", "postrm")];
    for (deb, rpm) in [
        (&metadata["deb"], &metadata["generate-rpm"]["variants"]["evenkeel"]),
        (&metadata["deb"]["variants"]["pvtcp-dkms"], &metadata["generate-rpm"]["variants"]["pvtcp-dkms"]),
    ] {
        let folder = deb["maintainer-scripts"].as_str().unwrap().trim_start_matches("../../");
        for (of_rpm, of_deb) in names {
            let path = format!("{folder}/{of_deb}");
            let expected = top().join(&path).exists().then_some(path.as_str());
            assert_eq!(rpm.get(format!("{of_rpm}_script")).map(|path| path.as_str().unwrap()), expected);
        }
        let there = std::fs::read_dir(top().join(folder)).unwrap();
        let known = |name: &str| names.iter().any(|(_, of_deb)| *of_deb == name);
        assert!(there.map(|e| e.unwrap().file_name()).all(|name| known(name.to_str().unwrap())));
    }
}
