//! Scenes: small captures with the outputs that they must give.
//!
//! `UPDATE_EXPECT=1 cargo test -p inflightd-core --test scenes` writes what is given now into the
//! files; read the difference before you commit it.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use inflightd_capture::replay;
use inflightd_core::Policy;

/// Lines that begin with this are expected outputs.
const EXPECT: &str = "> ";

fn scenes() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenes");
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the scenes' folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "scene"))
        .collect();
    files.sort();
    files
}

fn check(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).expect("a scene");
    let (expected, inputs): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with(EXPECT));
    let inputs = inputs.join("\n");
    let given = replay(&inputs, Policy::DEFAULT).expect("inputs that can be read");
    let given: Vec<String> = given.lines().map(|line| format!("{EXPECT}{line}")).collect();
    if given == expected {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let text = format!("{}\n\n{}\n", inputs.trim_end(), given.join("\n"));
        fs::write(path, text).expect("the scene is written");
        return Ok(());
    }
    Err(format!(
        "{}\nexpected\n{}\ngiven\n{}",
        path.display(),
        expected.join("\n"),
        given.join("\n")
    ))
}

#[test]
fn every_scene_gives_what_it_expects() {
    let scenes = scenes();
    assert!(scenes.len() >= 8, "only {} scenes found", scenes.len());
    let wrong: Vec<String> = scenes.iter().filter_map(|path| check(path).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
