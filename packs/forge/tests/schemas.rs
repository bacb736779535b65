//! The schemas are those of the types.

use helmdeck_forge::issues::{AddIssue, ListIssues, SetIssue, ShowIssue};
use helmdeck_forge::verb::Verb;
use helmdeck_forge::verbs::{
    AddFeature, ApplyRecovery, AssessRecovery, CommitWork, CreateCheckpoint, FinishWork,
    ListCheckpoints, ListFeatures, MeasureHealth, Prime, Remember, SearchKnowledge, SetFeature,
    StartWork, UseSkill, VerifyWork,
};

use crate::schemas::Schemas;

fn add<V: Verb>(schemas: &mut Schemas) {
    schemas.add::<V, V::Output>(V::NAME);
}

#[test]
fn file_has_the_schemas_of_the_types() {
    let mut schemas = Schemas::default();
    add::<AddIssue>(&mut schemas);
    add::<ListIssues>(&mut schemas);
    add::<SetIssue>(&mut schemas);
    add::<ShowIssue>(&mut schemas);
    add::<AddFeature>(&mut schemas);
    add::<ApplyRecovery>(&mut schemas);
    add::<AssessRecovery>(&mut schemas);
    add::<CommitWork>(&mut schemas);
    add::<CreateCheckpoint>(&mut schemas);
    add::<FinishWork>(&mut schemas);
    add::<ListCheckpoints>(&mut schemas);
    add::<ListFeatures>(&mut schemas);
    add::<MeasureHealth>(&mut schemas);
    add::<Prime>(&mut schemas);
    add::<Remember>(&mut schemas);
    add::<SearchKnowledge>(&mut schemas);
    add::<SetFeature>(&mut schemas);
    add::<StartWork>(&mut schemas);
    add::<UseSkill>(&mut schemas);
    add::<VerifyWork>(&mut schemas);
    schemas.check("forge");
}
