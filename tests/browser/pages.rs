//! Each place in each state: text, accessibility, layout, colours, keyboard, and what the browser
//! complains of.

use super::checks;
use super::chromium::{Browser, Tab};
use super::places::{PLACES, Place, State};
use super::project;
use super::scene::Scene;

/// Looks at every place of a state.
fn look(state: State) {
    let scene = Scene::start(state);
    let browser = Browser::start();
    let tab = scene.visitor(&browser);
    let before = scene
        .project
        .as_deref()
        .map(project::listing)
        .unwrap_or_default();
    let mut wrong = Vec::new();
    for place in PLACES.iter().filter(|place| place.states.contains(&state)) {
        let found = look_at(&tab, &scene, place, state);
        wrong.extend(
            found
                .into_iter()
                .map(|what| format!("{} ({state:?}): {what}", place.name)),
        );
    }
    let after = scene
        .project
        .as_deref()
        .map(project::listing)
        .unwrap_or_default();
    wrong.extend(project::changed(&before, &after));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn look_at(tab: &Tab<'_>, scene: &Scene, place: &Place, state: State) -> Vec<String> {
    let folder = format!("{state:?}").to_lowercase();
    let url = scene.server.url(&scene.path(place.path));
    tab.prefers("light", "no-preference");
    tab.size(1400, 900);
    let status = tab.open(&url);
    let mut wrong = tab.complaints();
    let text = format!("{} {status}\n{}", place.path, checks::outline(tab));
    // The text of `/docs` is that of the schemas, which have tests of their own.
    if place.name != "docs" {
        wrong.extend(checks::compare(&folder, place.name, &text));
    }
    wrong.extend(checks::foreign(tab));
    if tab
        .text("document.documentElement.outerHTML")
        .contains(project::SECRET)
    {
        wrong.push("it shows the value of a credential".to_owned());
    }
    wrong.extend(checks::axe(tab));
    wrong.extend(checks::layout(tab));
    // The other states have the same templates and colours, with less in them.
    let full = matches!(state, State::Busy | State::Hostile);
    if full {
        tab.picture(&checks::picture(
            &folder,
            &format!("{}-light-1400", place.name),
        ));
    }

    tab.prefers("dark", "reduce");
    if full {
        wrong.extend(
            checks::axe_colours(tab)
                .into_iter()
                .map(|what| format!("dark: {what}")),
        );
    }
    // A window of 1280 pixels at 400 % has 320; the narrowest telephones have 360.
    for width in [320, 360] {
        tab.size(width, 740);
        wrong.extend(
            checks::layout(tab)
                .into_iter()
                .map(|what| format!("{width} px: {what}")),
        );
    }
    if full {
        tab.picture(&checks::picture(
            &folder,
            &format!("{}-dark-360", place.name),
        ));
    }

    if matches!(state, State::Busy | State::Forbidden) {
        tab.size(1400, 900);
        // Live updates would move what the walk counts.
        tab.scripts(false);
        tab.open(&url);
        wrong.extend(checks::keyboard(tab));
        let without = format!("{} {status}\n{}", place.path, checks::outline(tab));
        tab.scripts(true);
        if without != text {
            wrong.push(format!(
                "without scripts it says something else:\n{without}"
            ));
        }
    }
    wrong
}

#[test]
fn empty_server_is_shown_well() {
    look(State::Empty);
}

#[test]
fn busy_server_is_shown_well() {
    look(State::Busy);
}

#[test]
fn server_without_memory_is_shown_well() {
    look(State::Shut);
}

#[test]
fn damaged_store_is_shown_well() {
    look(State::Down);
}

#[test]
fn missing_rights_are_shown_well() {
    look(State::Forbidden);
}

#[test]
fn hostile_texts_are_shown_as_texts() {
    look(State::Hostile);
}
