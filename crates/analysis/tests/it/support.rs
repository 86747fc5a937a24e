//! Functions that the tests share.

use contend_analysis::{AnalysisOptions, Plan, TypeSet};

/// Returns each type as a line: `-piece` has no rank, `2:piece+piece` has rank 2. Types on
/// snapshots are left out.
pub(crate) fn shown(types: &TypeSet, options: AnalysisOptions) -> Vec<String> {
    let plan = Plan::new(types, options).expect("valid declarations");
    let line = |(of, declared): (usize, &contend_model::pieces::TransactionType)| {
        let groups = plan.types[of].groups.iter().map(|group| {
            let names: Vec<&str> =
                declared.pieces[group.first..=group.last].iter().map(|piece| piece.name.as_str()).collect();
            group.rank.map_or_else(|| format!("-{}", names.join("+")), |rank| format!("{rank}:{}", names.join("+")))
        });
        format!("{} {}", declared.name, groups.collect::<Vec<_>>().join(" "))
    };
    let runs = |(of, _): &(usize, &contend_model::pieces::TransactionType)| !plan.types[*of].on_snapshot;
    types.types.iter().enumerate().filter(runs).map(line).collect()
}
