//! Spreads the turns of weighted choices, such as load-balancer targets, so that one choice does not get all its turns
//! in a row. Each choice has as many points on a circle as its weight, and the turns visit the points in large steps.

const GOLDEN_SECTION: f64 = 0.618_033_988_749_894_9;

/// Returns the step for a circle of `points` points. It is near the golden section of the circle, which spreads the
/// turns well. It is coprime to `points`, so that `points` turns visit each point once.
pub fn spreading_step(points: u64) -> u64 {
    let start = (points as f64 * GOLDEN_SECTION) as u64;
    (start.max(1)..)
        .find(|step| greatest_common_divisor(*step, points.max(1)) == 1)
        .unwrap_or(1)
}

pub fn greatest_common_divisor(one: u64, two: u64) -> u64 {
    match two {
        0 => one,
        _ => greatest_common_divisor(two, one % two),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_point_has_its_turn() {
        for points in (1..200).chain([1_000, 4_096, 65_536]) {
            let step = spreading_step(points);
            let visited: HashSet<u64> = (0..points).map(|turn| turn * step % points).collect();
            assert_eq!(visited.len() as u64, points, "{step}");
        }
        assert_eq!(spreading_step(0), 1);
    }
}
