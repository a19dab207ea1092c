//! Builds the kernel programs (`ebpf/probes`) and hands the object to `src/probe`.
//!
//! One of three ways, in this order:
//! 1. `INFLIGHTD_EBPF_OBJECT` names a prebuilt object;
//! 2. Debian's `/usr/bin/rustc`, whose `libstd-rust-web-dev-bpf` brings `core` for the target;
//! 3. a nightly tool chain with `rust-src`, which builds `core` itself.
//!
//! `INFLIGHTD_EBPF_ROUTE`, `debian` or `nightly`, leaves only one of the last two.
//!
//! The object lies in its own target directory, shared by all profiles, so that a change of the
//! agent alone never builds it again.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

const OBJECT: &str = "INFLIGHTD_EBPF_OBJECT";
const ROUTE: &str = "INFLIGHTD_EBPF_ROUTE";
const TARGET: &str = "bpfel-unknown-none";
const BINARY: &str = "inflightd-ebpf";
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
/// What the nested cargo may inherit. Everything else that cargo sets for a build script
/// (`RUSTC`, `CARGO_ENCODED_RUSTFLAGS`, `CARGO_TARGET_DIR`, `RUSTUP_TOOLCHAIN`, …) describes this
/// build, not that one.
const INHERITED: [&str; 16] = [
    "ALL_PROXY",
    "CARGO_HOME",
    "CARGO_HTTP_CAINFO",
    "CARGO_NET_GIT_FETCH_WITH_CLI",
    "CARGO_NET_OFFLINE",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "RUSTUP_HOME",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// A tool chain that can build for the kernel.
enum Route {
    /// Debian's compiler, with `core` prebuilt.
    Debian,
    /// A nightly tool chain with `rust-src`.
    Nightly,
}

fn main() -> ExitCode {
    match provide() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Puts the object at `$OUT_DIR/inflightd-ebpf.o`.
fn provide() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={OBJECT}");
    println!("cargo::rerun-if-env-changed={ROUTE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let built = match env::var_os(OBJECT).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = PathBuf::from(path);
            println!("cargo::rerun-if-changed={}", path.display());
            path
        }
        None => build(&out)?,
    };
    let wanted = out.join(format!("{BINARY}.o"));
    fs::copy(&built, &wanted)
        .map(drop)
        .map_err(|error| format!("copying the eBPF object {}: {error}", built.display()))
}

/// Builds the object by the first route that this machine has.
fn build(out: &Path) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for watched in [
        "ebpf/abi/Cargo.toml",
        "ebpf/abi/src/layout.rs",
        "ebpf/abi/src/lib.rs",
        "ebpf/abi/src/mishap.rs",
        "ebpf/abi/src/rdma.rs",
        "ebpf/abi/src/record.rs",
        "ebpf/probes/src",
        "ebpf/probes/Cargo.toml",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let path = search_path();
    let route = route(&path)?;
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out.
    let target = out.ancestors().nth(4).unwrap_or(out).join("ebpf");
    let output = command(&route, &path, &target)
        .current_dir(&root)
        .output()
        .map_err(|error| format!("starting cargo for the eBPF programs: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let said = told.find("error").map_or("", |start| &told[start..]);
        return Err(format!("the eBPF programs do not build ({}):\n{said}", output.status));
    }
    Ok(target.join(TARGET).join("release").join(BINARY))
}

/// `PATH`, with the places where cargo installs `bpf-linker`.
fn search_path() -> Vec<PathBuf> {
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(cargo_home.map(|home| home.join("bin")))
        .collect()
}

fn route(path: &[PathBuf]) -> Result<Route, String> {
    let has = |tool: &str| path.iter().any(|folder| folder.join(tool).is_file());
    let mut missing = Vec::new();
    if !has("bpf-linker") {
        missing.push("bpf-linker (neither in PATH nor in ~/.cargo/bin)");
    }
    let only = env::var(ROUTE).unwrap_or_default();
    let route = if only != "nightly" && has_core(DEBIAN_RUSTC) {
        Some(Route::Debian)
    } else if only != "debian" && has_nightly_source() {
        Some(Route::Nightly)
    } else {
        missing.push(
            "a compiler for bpfel-unknown-none (neither /usr/bin/rustc with \
             libstd-rust-web-dev-bpf, nor a nightly tool chain with rust-src)",
        );
        None
    };
    match route {
        Some(route) if missing.is_empty() => Ok(route),
        _ => Err(format!(
            "the eBPF programs need {}; `cargo xtask setup` installs what is missing, or \
             {OBJECT} may name a prebuilt object",
            missing.join(" and ")
        )),
    }
}

/// Whether this compiler has `core` for the kernel's target.
fn has_core(rustc: &str) -> bool {
    printed(Command::new(rustc).args(["--print", "target-libdir", "--target", TARGET]))
        .is_some_and(|folder| Path::new(&folder).is_dir())
}

fn has_nightly_source() -> bool {
    printed(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]))
        .is_some_and(|root| {
            Path::new(&root).join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file()
        })
}

/// The one line that a command prints; `None` where it is not there or fails.
fn printed(command: &mut Command) -> Option<String> {
    let output = isolate(command).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Leaves a command only the part of the environment that does not describe this build.
fn isolate(command: &mut Command) -> &mut Command {
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    for name in INHERITED {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// The nested cargo: its own target directory, its own flags.
fn command(route: &Route, path: &[PathBuf], target: &Path) -> Command {
    let mut command = match route {
        Route::Debian => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        Route::Nightly => Command::new("rustup"),
    };
    isolate(&mut command);
    match route {
        // The variable lets a stable compiler use the unstable features of aya-ebpf.
        Route::Debian => command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1"),
        Route::Nightly => command.args(["run", "nightly", "cargo"]),
    };
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_else(|_| "x86_64".to_owned());
    let flags = [
        format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
    ];
    command
        .args(["build", "--release", "--target", TARGET])
        .args(["--package", BINARY, "--bin", BINARY, "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    if matches!(route, Route::Nightly) {
        command.args(["-Z", "build-std=core"]);
    }
    if let Ok(joined) = env::join_paths(path) {
        command.env("PATH", joined);
    }
    command
}
