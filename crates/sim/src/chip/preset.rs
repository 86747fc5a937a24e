//! The hardware of a chip, as data. One file a machine, in `presets/`, where each parameter says
//! where it comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ChipError;
use super::directory::UNITS_MAX;

/// Cycles are of the cores' clock throughout, and a line has 64 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The machine's name.
    pub name: String,
    /// One line of meaning.
    pub summary: String,
    /// Where the parameters come from.
    pub source: String,
    /// The cores.
    pub core: CorePreset,
    /// A core's first-level data cache.
    pub l1: CachePreset,
    /// A core's second-level cache, if it has one.
    pub l2: Option<CachePreset>,
    /// The last level, which all cores share: a slice for each tile.
    pub llc: LastLevelPreset,
    /// How lines are kept coherent.
    pub coherence: CoherencePreset,
    /// What connects the tiles.
    pub network: NetworkPreset,
    /// What is behind the last level.
    pub memory: MemoryPreset,
}

/// Cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorePreset {
    /// Cores with caches of their own, one a tile.
    pub count: usize,
    /// Whether a run on fewer cores is on a smaller chip, with fewer tiles, instead of on a part of
    /// this one.
    pub scales: bool,
    /// Threads that run on one core at once. The first of each core are used up before the second
    /// of any.
    pub threads_per_core: usize,
    /// By how much a thread is slower while its core's other threads run as well.
    pub shared_core_slowdown: f64,
    /// The clock, in Hz.
    pub hertz: f64,
    /// Cycles of an instruction that touches no shared memory.
    pub cycles_per_instruction: f64,
    /// Instructions around one access to shared memory: computing the address, testing the value,
    /// private bookkeeping.
    pub instructions_per_access: u32,
    /// Cycles of an atomic read-modify-write besides those of having its line.
    pub atomic_cycles: u32,
    /// Cycles of a sequentially consistent fence.
    pub fence_cycles: u32,
    /// Cycles of a pause in a spin loop.
    pub pause_cycles: u32,
    /// Cycles of reading the clock, which is the same in all cores.
    pub clock_cycles: u32,
    /// Prefetches that may be under way at once; 0 if the core has none.
    pub prefetches: usize,
    /// Of the time of a miss that no other core is involved in, the fraction that the core stands
    /// still: an out-of-order core does other work meanwhile.
    pub stall: f64,
}

/// A private cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePreset {
    /// Its size. Sets must come out as a power of two.
    pub bytes: usize,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles of a hit.
    pub cycles: u32,
}

/// The shared level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LastLevelPreset {
    /// The size of a tile's slice.
    pub slice_bytes: usize,
    /// Cycles from the request's arrival until the directory is known.
    pub tag_cycles: u32,
    /// Cycles until the line is there as well.
    pub data_cycles: u32,
    /// Whether a line that leaves this level leaves the private caches, too.
    pub inclusive: bool,
}

/// Coherence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoherencePreset {
    /// Whether a core that reads a line nobody holds may write it without asking again (MESI; else
    /// MSI).
    pub exclusive_reads: bool,
    /// Whether a line's home takes no further request for the line until it has the owner's answer.
    /// Else it passes requests on, and `handoff_cycles` is what a line takes from owner to owner.
    pub blocking: bool,
    /// Cycles from the arrival of one exclusive request to that of the next, where the home does
    /// not block: within a socket, and between two.
    pub handoff_cycles: [u32; 2],
    /// Cycles for which a line's data follow its message on the network.
    pub line_cycles: u32,
}

/// What connects the tiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "lowercase")]
pub enum NetworkPreset {
    /// A square of tiles.
    Mesh {
        /// Cycles of one hop.
        hop_cycles: u32,
    },
    /// Sockets, in which all tiles are equally far from each other.
    Sockets {
        /// Tiles of a socket.
        tiles_per_socket: usize,
        /// Cycles within a socket.
        local_cycles: u32,
        /// Cycles to another socket, over one link, two, ...
        link_cycles: Vec<u32>,
    },
}

/// Memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryPreset {
    /// Cycles of an access.
    pub cycles: u32,
    /// Tiles to one memory controller.
    pub tiles_per_controller: usize,
    /// Bytes that one controller delivers in a second.
    pub bytes_per_second: f64,
}

/// The most cycles of one step: far more than any hardware has, and so few that no clock of 64 bits
/// overflows.
const CYCLES_MAX: f64 = 1e6;

/// Bytes of a line.
pub(crate) const LINE_BYTES: usize = 64;

/// The most bytes that the private caches of one level hold together.
const CACHED_BYTES_MAX: f64 = (16u64 << 30) as f64;

const EMBEDDED: &[&str] = &[
    include_str!("../../presets/abyss.toml"),
    include_str!("../../presets/xeon-8176x4.toml"),
    include_str!("../../presets/opteron-6474x8.toml"),
    include_str!("../../presets/xeon-phi-7250.toml"),
    include_str!("../../presets/xeon-e5-2695v2.toml"),
];

impl Preset {
    /// All presets.
    pub fn all() -> Vec<Preset> {
        EMBEDDED.iter().map(|text| Preset::from_toml(text).expect("checked by a test")).collect()
    }

    /// The preset of this name.
    ///
    /// # Errors
    /// There is none; the message has the names.
    pub fn named(name: &str) -> Result<Preset, ChipError> {
        let mut all = Preset::all();
        match all.iter().position(|preset| preset.name == name) {
            Some(position) => Ok(all.swap_remove(position)),
            None => {
                let names: Vec<&str> = all.iter().map(|preset| preset.name.as_str()).collect();
                Err(ChipError(format!("unknown chip '{name}'; valid: {}", names.join(", "))))
            }
        }
    }

    /// A preset from a file's text.
    ///
    /// # Errors
    /// The text is no preset, or no chip can be like this; the message says where, and what would
    /// be right.
    pub fn from_toml(text: &str) -> Result<Preset, ChipError> {
        let preset: Preset = toml::from_str(text).map_err(|error| ChipError(error.to_string()))?;
        preset.check().map_err(ChipError)?;
        Ok(preset)
    }

    /// The preset as a file's text.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain data")
    }

    /// Has this host thread's simulated clocks tick at the chip's frequency: to be called before
    /// anything converts times to cycles.
    pub fn set_clock(&self) {
        crate::clock::set_hertz(self.core.hertz);
    }

    /// Threads that can run at once.
    pub fn threads_max(&self) -> usize {
        self.core.count * self.core.threads_per_core
    }

    /// All parameters that are cycles or instructions of one step, each with its name.
    fn cycles(&self) -> Vec<(&'static str, u32)> {
        let (core, coherence) = (&self.core, &self.coherence);
        let mut all = vec![
            ("core.instructions_per_access", core.instructions_per_access),
            ("core.atomic_cycles", core.atomic_cycles),
            ("core.fence_cycles", core.fence_cycles),
            ("core.pause_cycles", core.pause_cycles),
            ("core.clock_cycles", core.clock_cycles),
            ("l1.cycles", self.l1.cycles),
            ("llc.tag_cycles", self.llc.tag_cycles),
            ("llc.data_cycles", self.llc.data_cycles),
            ("coherence.handoff_cycles", coherence.handoff_cycles[0].max(coherence.handoff_cycles[1])),
            ("coherence.line_cycles", coherence.line_cycles),
            ("memory.cycles", self.memory.cycles),
        ];
        all.extend(self.l2.as_ref().map(|l2| ("l2.cycles", l2.cycles)));
        match &self.network {
            NetworkPreset::Mesh { hop_cycles } => all.push(("network.hop_cycles", *hop_cycles)),
            NetworkPreset::Sockets { local_cycles, link_cycles, .. } => {
                all.push(("network.local_cycles", *local_cycles));
                all.extend(link_cycles.iter().map(|cycles| ("network.link_cycles", *cycles)));
            }
        }
        all
    }

    fn check(&self) -> Result<(), String> {
        let in_range = |what: &str, value: f64, low: f64, high: f64| {
            let message = || format!("{what} is {value}; valid: {low} to {high}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(message()) }
        };
        in_range("core.count", self.core.count as f64, 1.0, UNITS_MAX as f64)?;
        in_range("core.threads_per_core", self.core.threads_per_core as f64, 1.0, 8.0)?;
        in_range("core.shared_core_slowdown", self.core.shared_core_slowdown, 1.0, 100.0)?;
        in_range("core.hertz", self.core.hertz, 1e6, 1e11)?;
        in_range("core.cycles_per_instruction", self.core.cycles_per_instruction, 0.01, 100.0)?;
        in_range("core.prefetches", self.core.prefetches as f64, 0.0, super::PREFETCHES_MAX as f64)?;
        in_range("core.stall", self.core.stall, 0.0, 1.0)?;
        in_range("memory.tiles_per_controller", self.memory.tiles_per_controller as f64, 1.0, 1e6)?;
        in_range("memory.bytes_per_second", self.memory.bytes_per_second, 1e6, 1e13)?;
        in_range("llc.slice_bytes", self.llc.slice_bytes as f64, LINE_BYTES as f64, 1e9)?;
        for (name, value) in self.cycles() {
            in_range(name, value.into(), 0.0, CYCLES_MAX)?;
        }
        for (name, cache) in [("l1", Some(&self.l1)), ("l2", self.l2.as_ref())] {
            let Some(cache) = cache else { continue };
            in_range(&format!("{name}.ways"), cache.ways as f64, 1.0, 64.0)?;
            // The simulation has a word of 32 bits for each line: at most 1 GiB of them.
            let cached = self.core.count as f64 * cache.bytes as f64;
            in_range(&format!("{name}.bytes of all cores"), cached, LINE_BYTES as f64, CACHED_BYTES_MAX)?;
            let sets = cache.bytes / LINE_BYTES / cache.ways;
            if !sets.is_power_of_two() || sets * LINE_BYTES * cache.ways != cache.bytes {
                return Err(format!(
                    "{name}.bytes is {} and {name}.ways {}; valid: a power of two of sets of that many lines of {LINE_BYTES} bytes",
                    cache.bytes, cache.ways
                ));
            }
        }
        if let NetworkPreset::Sockets { tiles_per_socket, link_cycles, .. } = &self.network {
            in_range("network.tiles_per_socket", *tiles_per_socket as f64, 1.0, UNITS_MAX as f64)?;
            if link_cycles.is_empty() && self.core.count > *tiles_per_socket {
                return Err("network.link_cycles is empty; valid: the cycles over one link, two, ...".into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_preset_is_valid_and_survives_its_text() {
        let all = Preset::all();
        assert_eq!(all.len(), EMBEDDED.len());
        for preset in all {
            assert_eq!(Preset::from_toml(&preset.to_toml()).as_ref(), Ok(&preset));
            assert_eq!(Preset::named(&preset.name).as_ref(), Ok(&preset));
        }
    }

    #[test]
    fn what_no_chip_can_be_is_refused() {
        let text = EMBEDDED[0];
        let bytes = text.lines().find(|line| line.starts_with("bytes = ")).expect("a cache's size");
        for (from, to, expected) in [
            (bytes, "bytes = 4611686018427387904", "l1.bytes of all cores is"),
            (bytes, "bytes = 33554432", "valid: 64 to 17179869184"),
            (bytes, "bytes = 0", "l1.bytes of all cores is 0"),
            ("count = 1024", "count = 0", "core.count is 0"),
            ("ways = 4", "ways = 3", "a power of two of sets"),
            ("hertz = 1e9", "herz = 1e9", "herz"),
            ("stall = 1.0", "stall = 2.0", "core.stall is 2"),
            ("stall = 1.0", "stall = nan", "core.stall is NaN"),
            ("count = 1024", "count = 1152921504606846976", "core.count is 11529215"),
            ("count = 1024", "count = 18446744073709551616", "count"),
            ("count = 1024", "count = -1", "count"),
            ("[l1]\nbytes = ", "[l1]\nbytes = 1152921504606846976 # ", "l1.bytes of all cores is 118059"),
            ("[l1]\nbytes = ", "[l1]\nbytes = 536870912 # ", "l1.bytes of all cores is 549755813888"),
            ("ways = 4", "ways = 0", "l1.ways is 0"),
            ("slice_bytes = ", "slice_bytes = 1152921504606846976 # ", "llc.slice_bytes is"),
            ("hop_cycles = ", "hop_cycles = 4294967295 # ", "network.hop_cycles is 4294967295"),
            ("bytes_per_second = ", "bytes_per_second = 0.0 # ", "memory.bytes_per_second is 0"),
            ("tiles_per_controller = ", "tiles_per_controller = 0 # ", "memory.tiles_per_controller is 0"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Preset::from_toml(&text.replace(from, to)).expect_err("bad").to_string();
            assert!(error.contains(expected), "{expected} is not in: {error}");
        }
        let deep = format!("name = {}", "[".repeat(1_000_000));
        assert!(Preset::from_toml(&deep).is_err());
    }
}
