//! Installations below a directory of their own, with programs that note how they were called.

use std::os::unix::fs::PermissionsExt;

use super::*;

const RELEASE: &str = "6.1.0-9-test";
const FILES: &[(&str, &str)] = &[("dkms.conf", "PACKAGE_NAME=\"x\"\n"), ("main.c", "1"), ("algo/base/types.h", "2")];

struct Place(tempfile::TempDir);

impl Place {
    /// With headers and these programs.
    fn with(programs: &[&str]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.file("lib/modules/6.1.0-9-test/build/Makefile", "");
        fs::create_dir_all(place.path("bin")).unwrap();
        programs.iter().for_each(|name| place.stub(name, ""));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// A program that notes its arguments and then does this in the root.
    fn stub(&self, name: &str, does: &str) {
        let root = self.0.path().display();
        let script = format!("#!/bin/sh\ncd {root} || exit 9\necho {name} \"$@\" >> calls\n{does}\n");
        self.file(&format!("bin/{name}"), &script);
        fs::set_permissions(self.path(&format!("bin/{name}")), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn dkms(&self) {
        self.stub("dkms", "d=var/lib/dkms/pv/0.1; case $1 in add) /bin/mkdir -p $d ;; remove) /bin/rm -r $d ;; esac");
    }

    fn machine(&self) -> Machine {
        let programs = vec![self.path("bin")];
        Machine { root: self.0.path().to_owned(), release: RELEASE.to_owned(), programs }
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.replace(&format!("{}/", self.0.path().display()), "").lines().map(str::to_owned).collect()
    }

    fn install(&self) -> Result<Installed, PvtcpError> {
        install(&self.machine(), &sources())
    }
}

fn sources() -> Sources {
    Sources { name: "pv".to_owned(), version: "0.1".to_owned(), files: FILES }
}

#[test]
fn dkms_builds_from_the_sources_and_all_is_removed_again() {
    let place = Place::with(&["gcc", "make", "depmod"]);
    place.dkms();
    let installed = place.install().unwrap();
    assert_eq!((installed.method, installed.kernel.as_str()), (Method::Dkms, RELEASE));
    for (name, text) in FILES {
        assert_eq!(fs::read_to_string(place.path("usr/src/pv-0.1").join(name)).unwrap(), *text);
    }
    let calls = place.calls();
    assert!(calls.contains(&"dkms add pv/0.1".to_owned()), "{calls:?}");
    assert_eq!(calls.last().unwrap(), "dkms install pv/0.1 -k 6.1.0-9-test");
    assert_eq!(remove(&place.machine(), "pv").unwrap(), [place.path("usr/src/pv-0.1")]);
    assert_eq!(place.calls().last().unwrap(), "dkms remove pv/0.1 --all");
    assert_eq!(fs::read_dir(place.path("usr/src")).unwrap().count(), 0);
    assert!(remove(&place.machine(), "pv").unwrap().is_empty());
}

/// DKMS builds for another kernel only when that is installed, which may be in the past.
#[test]
fn dkms_builds_for_the_other_kernels_that_are_there() {
    let place = Place::with(&["gcc", "make", "depmod"]);
    place.stub(
        "dkms",
        "d=var/lib/dkms/pv/0.1; \
         case $1,$4 in add,*) /bin/mkdir -p $d ;; remove,*) /bin/rm -r $d ;; *,*bad) exit 3 ;; esac",
    );
    for kernel in ["6.1.0-10-good", "6.1.0-11-bad"] {
        place.file(&format!("lib/modules/{kernel}/build/Makefile"), "");
    }
    fs::create_dir_all(place.path("lib/modules/6.1.0-8-without-headers")).unwrap();
    let installed = place.install().unwrap();
    assert_eq!(installed.not_built, ["6.1.0-11-bad"]);
    assert!(installed.to_string().contains("could not be built for 6.1.0-11-bad"), "{installed}");
    let mut built: Vec<_> = place.calls().into_iter().filter(|call| call.starts_with("dkms install")).collect();
    assert_eq!(built.remove(0), "dkms install pv/0.1 -k 6.1.0-9-test");
    built.sort();
    assert_eq!(built, ["10-good", "11-bad"].map(|kernel| format!("dkms install pv/0.1 -k 6.1.0-{kernel}")));
}

#[test]
fn a_build_that_fails_says_that_the_module_before_is_gone() {
    let place = Place::with(&["gcc", "make", "depmod"]);
    place.dkms();
    place.install().unwrap();
    place.stub("dkms", "case $1 in install) exit 3 ;; esac");
    let error = place.install().unwrap_err().to_string();
    assert!(error.contains("The module that was installed before is gone, too"), "{error}");
}

#[test]
fn without_dkms_the_module_is_built_for_this_kernel() {
    // The name of Debian's compiler for kernels.
    let place = Place::with(&["gcc-14", "depmod"]);
    place.stub("make", "case $4 in modules) echo built > usr/src/pv-0.1/evenkeel_pvtcp.ko ;; esac");
    let installed = place.install().unwrap();
    assert_eq!(installed.method, Method::Make);
    assert!(installed.to_string().contains("for 6.1.0-9-test alone: there is no dkms"), "{installed}");
    let module = place.path("lib/modules/6.1.0-9-test/updates/evenkeel_pvtcp.ko");
    assert_eq!(fs::read_to_string(&module).unwrap(), "built\n");
    let make = "make -C usr/src/pv-0.1 KDIR=";
    let calls = place.calls();
    assert!(calls[0].starts_with(make) && calls[0].ends_with("modules"), "{calls:?}");
    assert!(calls[1].starts_with(make) && calls[1].ends_with("clean"), "{calls:?}");
    assert_eq!(calls[2], "depmod 6.1.0-9-test");
    remove(&place.machine(), "pv").unwrap();
    assert!(!module.parent().unwrap().exists());
    assert_eq!(place.calls().last().unwrap(), "depmod 6.1.0-9-test");
}

#[test]
fn all_that_is_missing_is_said_at_once_and_nothing_is_changed() {
    // The second is no compiler.
    let place = Place::with(&["make", "gcc-ranlib"]);
    fs::remove_dir_all(place.path("lib")).unwrap();
    place.file("etc/os-release", "NAME=x\nID=linuxmint\nID_LIKE=\"ubuntu debian\"\n");
    let error = place.install().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("for lack of headers of kernel 6.1.0-9-test"), "{text}");
    assert!(text.contains("`gcc`") && text.contains("`depmod`") && !text.contains("`make`"), "{text}");
    let help = "apt-get install linux-headers-6.1.0-9-test dkms gcc make kmod";
    assert_eq!(error.help(), Some(help));
    assert!(matches!(error, PvtcpError::Missing { .. }));
    assert!(!place.path("usr").exists() && place.calls().is_empty());
}

#[test]
fn each_family_has_its_command() {
    for (os, command) in [
        ("ID=fedora\n", "dnf install kernel-devel-6.1.0-9-test"),
        ("ID=\"opensuse-leap\"\nID_LIKE=\"suse opensuse\"\n", "zypper install"),
        ("ID=arch\n", "pacman -S"),
        ("ID=nobody\n", "install the headers of the running kernel"),
    ] {
        let place = Place::with(&[]);
        place.file("etc/os-release", os);
        let error = place.install().unwrap_err();
        assert!(error.help().unwrap().starts_with(command), "{os}: {:?}", error.help());
    }
}

#[test]
fn a_packages_sources_are_left_alone() {
    let place = Place::with(&["gcc", "make", "depmod", "dkms"]);
    place.file("usr/src/pv-0.1/dkms.conf", "a package's");
    let error = place.install().unwrap_err();
    assert!(matches!(error, PvtcpError::Packaged { .. }), "{error}");
    assert!(remove(&place.machine(), "pv").unwrap().is_empty());
    assert_eq!(fs::read_to_string(place.path("usr/src/pv-0.1/dkms.conf")).unwrap(), "a package's");
    assert!(place.calls().is_empty());
}

#[test]
fn a_build_that_fails_shows_the_compilers_words_and_leaves_nothing() {
    let place = Place::with(&["gcc", "depmod"]);
    place.stub("make", "echo main.c:7: error: no member named x >&2; exit 2");
    let error = place.install().unwrap_err();
    assert!(error.to_string().contains("main.c:7: error: no member named x"), "{error}");
    assert_eq!(fs::read_dir(place.path("usr/src")).unwrap().count(), 0);
}

#[test]
fn a_machine_that_wants_signatures_says_so_with_what_to_do() {
    let signing = |files: &[(&str, &str)]| {
        let place = Place::with(&["gcc", "depmod"]);
        place.stub("make", "echo built > usr/src/pv-0.1/evenkeel_pvtcp.ko");
        files.iter().for_each(|(name, text)| place.file(name, text));
        let signing = place.install().unwrap().signing;
        (signing.reasons.len(), signing.to_string().replace(&format!("{}/", place.0.path().display()), "/"))
    };
    let lockdown = "sys/kernel/security/lockdown";
    let variable = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    assert_eq!(signing(&[]), (0, String::new()));
    assert_eq!(signing(&[(lockdown, "[none] integrity confidentiality\n"), (variable, "\u{6}\0\0\0\0")]).0, 0);
    let (reasons, text) = signing(&[(variable, "\u{6}\0\0\0\u{1}"), ("var/lib/dkms/mok.pub", "")]);
    assert_eq!(reasons, 1);
    assert!(
        text.starts_with("Secure Boot is on: ") && text.contains("mokutil --import /var/lib/dkms/mok.pub"),
        "{text}"
    );
    let enforced = "sys/module/module/parameters/sig_enforce";
    let (reasons, text) = signing(&[(lockdown, "none [integrity] confidentiality\n"), (enforced, "Y\n")]);
    assert_eq!(reasons, 2);
    assert!(text.contains("scripts/sign-file"), "{text}");
}
