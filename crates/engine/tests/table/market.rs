//! Machines to choose from, as lines of a scene; and seeded dice.

/// SplitMix64.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    pub(crate) fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len() as u64) as usize]
    }
}

/// The kwok provider's: three families, one price per core and gigabyte, spot at seven tenths.
pub(crate) fn generic(sizes: &[u64], has_spot: bool) -> String {
    let mut out = String::new();
    for (family, gib_per_cpu) in [("c", 2), ("s", 4), ("m", 8)] {
        for cpus in sizes {
            let gib = cpus * gib_per_cpu;
            let micros = cpus * 25_000 + gib * 1_074;
            let spot = if has_spot { format!("spot {}", dollars(micros * 7 / 10)) } else { String::new() };
            out += &format!("type {family}.{cpus}x {cpus}cpu {gib}Gi {} zones a,b,c,d {spot}\n", dollars(micros));
        }
    }
    out
}

/// The peer's benchmark's: n cores and 2n gibibytes, at one price per core and gigabyte, spot as dear as on demand.
pub(crate) fn made_up(n: u64) -> String {
    (1..=n)
        .map(|n| {
            let price = dollars(n * 100_000 + n * 2 * 107_374);
            format!("type fake.{n} {n}cpu {}Gi {price} zones a,b,c spot {price}\n", 2 * n)
        })
        .collect()
}

/// Like a real catalogue: generations of three families, prices that follow no rule quite, spot at a third or so.
pub(crate) fn grown(seed: u64, sizes: &[u64]) -> String {
    let mut dice = Dice::new(seed);
    let mut out = String::new();
    for (family, gib_per_cpu, per_cpu) in [("c", 2, 42_500), ("m", 4, 48_000), ("r", 8, 63_000)] {
        for generation in 5..8 {
            for cpus in sizes {
                let micros = cpus * per_cpu * (90 + dice.below(21)) / 100;
                let spot = micros * (28 + dice.below(30)) / 100;
                let zones = dice.pick(&["a,b,c", "a,b,c", "a,b", "b,c"]);
                let (name, gib) = (format!("{family}{generation}.{cpus}x"), cpus * gib_per_cpu);
                let (price, spot) = (dollars(micros), dollars(spot));
                out += &format!("type {name} {cpus}cpu {gib}Gi {price} zones {zones} spot {spot}\n");
            }
        }
    }
    out
}

/// With one to four graphics cards, a few times as dear.
pub(crate) fn with_cards() -> &'static str {
    "type g.small 4cpu 16Gi $0.526 zones a,b gpu 1
     type g.large 16cpu 64Gi $1.204 zones a,b gpu 1
     type g.twin 24cpu 96Gi $2.1 zones a gpu 2
     type g.quad 48cpu 192Gi $3.912 zones b,c gpu 4
    "
}

fn dollars(micros: u64) -> String {
    format!("${}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
