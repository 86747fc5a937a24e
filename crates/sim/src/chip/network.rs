//! The way between the tiles of a chip, or the sockets of a server, in cycles.

use super::preset::NetworkPreset;

/// How far things are from each other.
#[derive(Clone, Debug)]
pub(crate) enum Network {
    /// A square of tiles; a message goes along one axis, then along the other.
    Mesh {
        /// By tile: column and row.
        places: Vec<(u16, u16)>,
        hop_cycles: u32,
    },
    /// Sockets; within one all is equally far.
    Sockets {
        /// By tile: its socket.
        sockets: Vec<u16>,
        local_cycles: u32,
        /// By pair of sockets.
        cycles: Vec<u32>,
        count: usize,
    },
}

impl Network {
    pub(crate) fn new(preset: &NetworkPreset, tiles: usize) -> Network {
        match preset {
            NetworkPreset::Mesh { hop_cycles } => {
                let side = (1..).find(|side| side * side >= tiles).expect("a square is large enough");
                let places = (0..tiles).map(|tile| ((tile % side) as u16, (tile / side) as u16)).collect();
                Network::Mesh { places, hop_cycles: *hop_cycles }
            }
            NetworkPreset::Sockets { tiles_per_socket, local_cycles, link_cycles } => {
                let sockets: Vec<u16> = (0..tiles).map(|tile| (tile / tiles_per_socket) as u16).collect();
                let count = sockets.last().map_or(1, |last| usize::from(*last) + 1);
                // Sockets that differ in one bit of their numbers are linked; others are as many
                // links apart as bits differ, up to the number of distances that the preset gives.
                let distance = |a: usize, b: usize| match (a ^ b).count_ones() as usize {
                    0 => *local_cycles,
                    links => link_cycles[links.min(link_cycles.len()) - 1],
                };
                let cycles = (0..count * count).map(|pair| distance(pair / count, pair % count)).collect();
                Network::Sockets { sockets, local_cycles: *local_cycles, cycles, count }
            }
        }
    }

    /// From one tile to another.
    #[inline]
    pub(crate) fn cycles(&self, from: usize, to: usize) -> u64 {
        match self {
            Network::Mesh { places, hop_cycles } => {
                let ((x, y), (u, v)) = (places[from], places[to]);
                u64::from(x.abs_diff(u) + y.abs_diff(v)) * u64::from(*hop_cycles)
            }
            Network::Sockets { sockets, local_cycles, cycles, count } => {
                let (a, b) = (usize::from(sockets[from]), usize::from(sockets[to]));
                u64::from(if a == b { *local_cycles } else { cycles[a * count + b] })
            }
        }
    }

    /// From a tile to what stands in its own socket for a tile.
    #[inline]
    pub(crate) fn near_cycles(&self, from: usize, to: usize) -> u64 {
        match self {
            Network::Mesh { .. } => self.cycles(from, to),
            Network::Sockets { local_cycles, .. } => u64::from(*local_cycles),
        }
    }

    /// Whether two tiles are in different sockets.
    #[inline]
    pub(crate) fn is_remote(&self, a: usize, b: usize) -> bool {
        match self {
            Network::Mesh { .. } => false,
            Network::Sockets { sockets, .. } => sockets[a] != sockets[b],
        }
    }

    /// The tile in the middle.
    pub(crate) fn centre(&self) -> usize {
        match self {
            Network::Mesh { places, .. } => {
                let middle = |axis: fn(&(u16, u16)) -> u16| places.iter().map(axis).max().unwrap_or(0).div_ceil(2);
                let (x, y) = (middle(|place| place.0), middle(|place| place.1));
                places.iter().position(|place| *place == (x, y)).unwrap_or(0)
            }
            Network::Sockets { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mesh_of_the_paper_has_its_distances() {
        let network = Network::new(&NetworkPreset::Mesh { hop_cycles: 2 }, 1024);
        let sum: u64 = (0..1024).map(|from| (0..1024).map(|to| network.cycles(from, to)).sum::<u64>()).sum();
        let mean = sum as f64 / (1024.0 * 1024.0);
        // 21.3 hops of 2 cycles between two random tiles of 32 x 32.
        assert!((mean - 42.6).abs() < 0.1, "{mean} cycles");
        let centre: u64 = (0..1024).map(|from| network.cycles(from, network.centre())).sum();
        assert_eq!(centre / 1024, 32, "16 hops to the centre");
    }

    #[test]
    fn sockets_are_farther_than_tiles_of_one() {
        let preset = NetworkPreset::Sockets { tiles_per_socket: 2, local_cycles: 10, link_cycles: vec![100, 150] };
        let network = Network::new(&preset, 8);
        let from_first: Vec<u64> = (0..8).map(|to| network.cycles(0, to)).collect();
        assert_eq!(from_first, [10, 10, 100, 100, 100, 100, 150, 150]);
        assert!(network.is_remote(1, 2) && !network.is_remote(2, 3));
    }
}
