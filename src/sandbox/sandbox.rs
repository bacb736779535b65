//! The sandbox that commands of a session run in, by bubblewrap.
//!
//! It has separate user, process, network, IPC, host name and cgroup namespaces, no capability, and
//! a file system with the session's folders, `/usr`, and the few files of `/etc` that programs
//! need.
//!
//! When helmdeck runs as root there are two nested sandboxes. The outer one only mounts the
//! session's folders where another user can reach them. Then root is given up, and that user makes
//! the real sandbox. So no process of a session is root anywhere, and the limit on processes
//! applies, which it does not for root.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use helmdeck_core::session::Exec;

use super::config::SessionConfig;
use super::stage::{NO_CGROUP, STAGE};
use super::variables;

/// Path of the session's folder inside. It is the home folder too.
pub(crate) const FOLDER: &str = "/workspace";
/// Path of the session's supplies inside.
pub(crate) const SUPPLIES: &str = "/supplies";
/// Path of the helmdeck program inside.
const PROGRAM: &str = "/run/helmdeck";
/// Search paths of bubblewrap.
const PLACES: &[&str] = &["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];
/// User and group id inside.
const INSIDE_USER: &str = "1000";
/// Links into `/usr` on most systems, folders on others.
const BESIDE_USR: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Files of `/etc` that programs need: linker cache, TLS roots, alternatives, time zone, MIME
/// types.
const ETC: &[&str] = &[
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates",
    "/etc/alternatives",
    "/etc/localtime",
    "/etc/os-release",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/python3",
];
/// Generated files of `/etc`: name and content.
pub(crate) const OWN_ETC: &[(&str, &str)] = &[
    (
        "passwd",
        "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:/workspace:/bin/sh\n",
    ),
    ("group", "root:x:0:\nagent:x:1000:\n"),
    ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\n",
    ),
];
/// Files of `/proc` that tell about this machine or its kernel, and that no build or test needs.
/// They cannot be opened.
const CLOSED_FILES: &[&str] = &[
    "cmdline",
    "config.gz",
    "consoles",
    "diskstats",
    "interrupts",
    "iomem",
    "ioports",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "latency_stats",
    "mdstat",
    "modules",
    "mtrr",
    "pagetypeinfo",
    "partitions",
    "sched_debug",
    "slabinfo",
    "softirqs",
    "timer_list",
    "timer_stats",
    "vmallocinfo",
];
/// The same for folders of `/proc`. They are empty.
const CLOSED_FOLDERS: &[&str] = &["acpi", "asound", "driver", "fs", "scsi"];
/// Default search path.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// Returns the paths that commands can always read.
pub(crate) fn always_shown() -> impl Iterator<Item = &'static Path> {
    ["/usr"].iter().chain(BESIDE_USR).chain(ETC).map(Path::new)
}

/// The folders of one session, as this process sees them.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) folder: PathBuf,
    pub(crate) supplies: PathBuf,
    pub(crate) etc: PathBuf,
}

impl Folders {
    pub(crate) fn of(session: &Path) -> Self {
        let at = |name| session.join(name);
        Self {
            folder: at("folder"),
            supplies: at("supplies"),
            etc: at("etc"),
        }
    }
}

/// How commands are isolated.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    /// `None`: no sandbox, which the operator allows.
    pub(crate) bwrap: Option<Bwrap>,
    /// This program.
    pub(crate) program: PathBuf,
    /// User id of commands; `None` = that of this process.
    pub(crate) user: Option<u32>,
}

/// An installed bubblewrap.
#[derive(Debug, Clone)]
pub(crate) struct Bwrap {
    path: PathBuf,
    /// Whether it supports `--disable-userns` (since 0.8.0).
    disables_user_namespaces: bool,
}

/// Complete command line of a command in a session.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) argv: Vec<OsString>,
    /// The command's environment, sent on stdin before its input.
    ///
    /// The programs around the command have no environment.
    pub(crate) before: Vec<u8>,
}

impl Bwrap {
    /// Finds bubblewrap; `None` if it is not installed.
    pub(crate) fn find() -> Option<Self> {
        let path = PLACES
            .iter()
            .map(PathBuf::from)
            .find(|path| path.is_file())?;
        let help = std::process::Command::new(&path)
            .arg("--help")
            .env_clear()
            .output()
            .ok()?;
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        Some(Self {
            path,
            disables_user_namespaces: help.contains("--disable-userns"),
        })
    }
}

/// Builder of a command line.
struct Words(Vec<OsString>);

/// Returns the parent folders of `paths`, outermost first.
///
/// Folders that bubblewrap makes by itself are closed to other users.
fn parents<'a>(paths: impl Iterator<Item = &'a Path>) -> BTreeSet<&'a Path> {
    let all = paths.flat_map(|path| path.ancestors().skip(1));
    all.filter(|folder| folder.parent().is_some() && !folder.starts_with("/usr"))
        .collect()
}

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn place(&mut self, option: &str, from: &Path, to: &str) {
        self.0
            .extend([OsString::from(option), from.into(), to.into()]);
    }

    /// Adds bubblewrap with its options, and before it how many of its arguments the stage is to
    /// hide.
    fn bwrap(&mut self, bwrap: &Bwrap, options: Self) {
        self.add([&options.0.len().to_string(), "--"]);
        self.0.push(bwrap.path.clone().into());
        self.0.extend(options.0);
        self.add(["--"]);
    }

    /// Adds the mounts of both sandboxes. `folders` and `program` are paths outside.
    fn mounts(&mut self, folders: &Folders, program: &Path, config: &SessionConfig) {
        self.add(["--ro-bind", "/usr", "/usr"]);
        for path in BESIDE_USR {
            match std::fs::read_link(path) {
                Ok(target) => self.place("--symlink", &target, path),
                Err(_) if Path::new(path).is_dir() => self.add(["--ro-bind", path, path]),
                Err(_) => {}
            }
        }
        let ours = OWN_ETC
            .iter()
            .map(|(name, _)| Path::new("/etc").join(name))
            .collect::<Vec<_>>();
        let places = ETC
            .iter()
            .map(Path::new)
            .chain(config.read_only_paths.iter().map(PathBuf::as_path));
        for folder in parents(
            places
                .chain(ours.iter().map(PathBuf::as_path))
                .chain([Path::new(PROGRAM)]),
        ) {
            self.0.extend([OsString::from("--dir"), folder.into()]);
        }
        for path in ETC {
            self.add(["--ro-bind-try", path, path]);
        }
        for (name, _) in OWN_ETC {
            self.place(
                "--ro-bind-try",
                &folders.etc.join(name),
                &format!("/etc/{name}"),
            );
        }
        for path in &config.read_only_paths {
            self.place("--ro-bind", path, &path.to_string_lossy());
        }
        self.place("--ro-bind", program, PROGRAM);
        self.place("--ro-bind", &folders.supplies, SUPPLIES);
        self.place("--bind", &folders.folder, FOLDER);
    }
}

impl Sandbox {
    /// Returns the paths of the session's folder and supplies inside.
    pub(crate) fn inside(&self, folders: &Folders) -> (String, String) {
        match self.bwrap {
            Some(_) => (FOLDER.to_owned(), SUPPLIES.to_owned()),
            None => (
                folders.folder.to_string_lossy().into_owned(),
                folders.supplies.to_string_lossy().into_owned(),
            ),
        }
    }

    /// Builds the complete command line. `cwd` is below the session's folder, without `..`.
    pub(crate) fn line(
        &self,
        folders: &Folders,
        config: &SessionConfig,
        memory: u64,
        cgroup: Option<&Path>,
        command: &Exec,
    ) -> Line {
        let mut words = Words(vec![self.program.clone().into()]);
        words.add([STAGE, "supervise", &std::process::id().to_string()]);
        words
            .0
            .push(cgroup.map_or_else(|| NO_CGROUP.into(), Into::into));
        let before = variables::written(&self.environment(folders, config, command));
        let limits = |words: &mut Words, program: &Path| {
            words.0.push(program.into());
            let numbers = [
                config.processes,
                config.address_space.max(memory),
                config.disk,
                config.open_files,
            ];
            words.add([STAGE, "limits"]);
            words
                .0
                .extend(numbers.map(|number| number.to_string().into()));
            words.add([if command.merge_stderr {
                "merge"
            } else {
                "apart"
            }]);
            let (folder, _) = self.inside(folders);
            words.0.push(Path::new(&folder).join(&command.cwd).into());
            words.add(["--"]);
            words.0.extend(command.argv.iter().map(OsString::from));
        };
        let Some(bwrap) = &self.bwrap else {
            words.add(["0", "--"]);
            limits(&mut words, &self.program);
            return Line {
                argv: words.0,
                before,
            };
        };
        match self.user {
            Some(user) => {
                words.bwrap(bwrap, outer(folders, &self.program, config));
                words.add([PROGRAM, STAGE, "user", &user.to_string()]);
                let moved = Folders {
                    folder: FOLDER.into(),
                    supplies: SUPPLIES.into(),
                    etc: "/etc".into(),
                };
                words.bwrap(bwrap, inner(bwrap, &moved, Path::new(PROGRAM), config));
            }
            None => words.bwrap(bwrap, inner(bwrap, folders, &self.program, config)),
        }
        limits(&mut words, Path::new(PROGRAM));
        Line {
            argv: words.0,
            before,
        }
    }

    /// Returns the default environment of commands with the additions of this one.
    fn environment(
        &self,
        folders: &Folders,
        config: &SessionConfig,
        command: &Exec,
    ) -> Vec<(String, String)> {
        let mut path: String = config
            .path
            .iter()
            .map(|path| format!("{}:", path.display()))
            .collect();
        path.push_str(PATH);
        let (folder, _) = self.inside(folders);
        let tmp = if self.bwrap.is_some() {
            "/tmp".to_owned()
        } else {
            folder.clone()
        };
        let mut all = vec![
            ("PATH".to_owned(), path),
            ("HOME".to_owned(), folder.clone()),
            (
                "PWD".to_owned(),
                Path::new(&folder)
                    .join(&command.cwd)
                    .to_string_lossy()
                    .trim_end_matches('/')
                    .to_owned(),
            ),
            ("TMPDIR".to_owned(), tmp),
            ("USER".to_owned(), "agent".to_owned()),
            ("LOGNAME".to_owned(), "agent".to_owned()),
            ("SHELL".to_owned(), "/bin/sh".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
            ("TERM".to_owned(), "dumb".to_owned()),
            ("PAGER".to_owned(), "cat".to_owned()),
            ("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()),
            ("GIT_CONFIG_NOSYSTEM".to_owned(), "1".to_owned()),
            ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
        ];
        all.retain(|(name, _)| !command.env.contains_key(name));
        all.extend(
            command
                .env
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        all
    }
}

/// Returns the options of the outer sandbox.
///
/// It only makes the session's folders reachable for another user.
fn outer(folders: &Folders, program: &Path, config: &SessionConfig) -> Words {
    let mut words = Words(Vec::new());
    // A process without capabilities cannot kill one of another user when it dies; the end of a PID
    // namespace can.
    words.add([
        "--die-with-parent",
        "--unshare-pid",
        "--dev-bind",
        "/dev",
        "/dev",
        "--bind",
        "/proc",
        "/proc",
    ]);
    words.add(["--tmpfs", "/tmp"]);
    words.mounts(folders, program, config);
    words
}

/// Returns the options of the sandbox itself.
fn inner(bwrap: &Bwrap, folders: &Folders, program: &Path, config: &SessionConfig) -> Words {
    let mut words = Words(Vec::new());
    words.add([
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
    ]);
    // The first process is ours, because a command could change that of bubblewrap.
    words.add(["--as-pid-1"]);
    if bwrap.disables_user_namespaces {
        words.add(["--disable-userns"]);
    }
    words.add([
        "--uid",
        INSIDE_USER,
        "--gid",
        INSIDE_USER,
        "--hostname",
        "sandbox",
        "--clearenv",
    ]);
    let tmp = config.tmp.to_string();
    words.add(["--proc", "/proc", "--dev", "/dev"]);
    let there = |name: &&&str| Path::new("/proc").join(name).exists();
    for name in CLOSED_FILES.iter().filter(there) {
        // A device, which bubblewrap mounts so that devices cannot be opened.
        words.add(["--ro-bind", "/dev/null", &format!("/proc/{name}")]);
    }
    for folder in CLOSED_FOLDERS
        .iter()
        .filter(there)
        .map(|name| format!("/proc/{name}"))
    {
        words.add([
            "--perms",
            "0555",
            "--size",
            "4096",
            "--tmpfs",
            &folder,
            "--remount-ro",
            &folder,
        ]);
    }
    words.add(["--perms", "1777", "--size", &tmp, "--tmpfs", "/tmp"]);
    words.add(["--perms", "1777", "--size", &tmp, "--tmpfs", "/dev/shm"]);
    // After /tmp and the others, so that a path of the operator below one of them is visible.
    words.mounts(folders, program, config);
    words.add([
        "--dir",
        "/var/tmp",
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
    ]);
    words.add(["--chdir", "/"]);
    words
}
