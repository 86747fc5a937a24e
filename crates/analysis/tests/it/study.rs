//! The models of web applications in experiments/ic3-t2, and the page that reports them.

use std::path::Path;

use contend_analysis::{AnalysisOptions, Application, Chopping, Plan};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// docs/pieces.md has the counts of each model, as they are now.
#[test]
fn the_models_of_web_applications_are_as_reported() {
    let document = std::fs::read_to_string(Path::new(ROOT).join("docs/pieces.md")).expect("the page");
    let folder = std::fs::read_dir(Path::new(ROOT).join("experiments/ic3-t2")).expect("the models");
    let mut models = Vec::new();
    for path in folder.map(|entry| entry.expect("a file").path()) {
        let name = path.display();
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let application = Application::from_toml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plan = Plan::new(&application.types, AnalysisOptions::default()).expect("valid");
        let chopping = Chopping::new(&application.types, AnalysisOptions::default()).expect("valid");
        let described = plan.describe(&application.types, &chopping);
        let study = application.study(&plan).describe();
        println!("{}: {described}{study}\n", application.name);
        assert!(document.lines().any(|line| line == study), "docs/pieces.md lacks: {study}");
        assert!(text.contains("Source: https://github.com/"), "{name} does not say what was read");
        models.push((application.types.types.len(), application.name));
    }
    models.sort();
    assert!(models.len() >= 3 && models.last().is_some_and(|(types, _)| *types >= 8), "{models:?}");
}
