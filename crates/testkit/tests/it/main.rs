//! Replays the committed fuzz corpus through the functions of the fuzz targets, on a stable
//! toolchain.

use std::fs;
use std::path::Path;

use ebof_testkit::fuzz::TARGETS;
use ebof_testkit::random::Random;

/// Inputs made of each input of the corpus.
const VARIANTS: u64 = 20;

// @test hostile.no-crash
#[test]
fn no_input_of_the_corpus_panics() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut inputs = 0;
        for entry in fs::read_dir(corpus.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")) {
            let path = entry.unwrap().path();
            let input = fs::read(&path).unwrap();
            println!("{}", path.display());
            target(&input);
            for seed in 0..VARIANTS {
                target(&variant(&input, &mut Random::new(seed)));
            }
            inputs += 1;
        }
        assert!(inputs > 0, "{name} has no corpus");
    }
}

/// A truncated input with some bytes changed, which takes other paths.
fn variant(input: &[u8], random: &mut Random) -> Vec<u8> {
    let mut input = input[..input.len() - random.below(input.len()) / 2].to_vec();
    for _ in 0..random.below(8) {
        let at = random.below(input.len());
        if let Some(byte) = input.get_mut(at) {
            *byte = random.bytes(1)[0];
        }
    }
    input
}

#[test]
fn fuzz_targets_and_cargo_fuzz_agree() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let bins: Vec<_> = manifest.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    let targets: Vec<_> = std::iter::once("ebof-fuzz").chain(TARGETS.iter().map(|(name, _)| *name)).collect();
    assert_eq!(bins, targets);
}
