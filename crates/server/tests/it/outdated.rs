//! A new configuration that was planned from another one than is in force.

use std::sync::Barrier;

use ebof_manage::api::{ApplyError, Revision, Target as _};
use ebof_manage::config::Namespace;
use ebof_manage::{Config, Drive};

use crate::reload_rig::{block, connect, namespace, start};

fn with_another(config: &Config, nsid: u32) -> Config {
    let mut config = config.clone();
    let drive = Drive::Memory { size_bytes: 1 << 20 };
    config.subsystems[0].namespaces.push(Namespace::new(nsid, drive));
    config
}

// @test data.planned-revision
#[test]
fn an_outdated_plan_is_refused_and_changes_nothing() {
    let (target, config, address) = start(&["mem:1Mi"]);
    let controller = connect(address);
    let first = namespace(&controller, 1);
    first.write(0, &[8; 512], false).unwrap();
    let planned = Revision::from_config(&target.config());
    target.apply_to(&planned, with_another(&config, 2)).unwrap();
    let before = target.status().generation;
    let error = target.apply_to(&planned, with_another(&config, 3)).unwrap_err();
    let current = Revision::from_config(&target.config());
    let ApplyError::Outdated { planned: from, current: now } = &error else { panic!("{error}") };
    assert_eq!((from, now), (&planned, &current));
    assert!(error.to_string().contains(planned.as_str()) && error.to_string().contains(current.as_str()), "{error}");
    assert_eq!((target.config(), target.status().generation), (with_another(&config, 2), before));
    assert_eq!(block(&first), [8; 512]);
    // Back to what there was: its revision is the one that it had.
    target.apply_to(&current, config).unwrap();
    assert_eq!(Revision::from_config(&target.config()), planned);
}

// @test data.planned-revision
#[test]
fn of_several_changes_of_one_revision_one_is_made() {
    let (target, config, _) = start(&["mem:1Mi"]);
    let planned = Revision::from_config(&target.config());
    let together = Barrier::new(8);
    let made: Vec<u32> = std::thread::scope(|scope| {
        let all: Vec<_> = (2..10)
            .map(|nsid| {
                let desired = with_another(&config, nsid);
                let (target, planned, together) = (&target, &planned, &together);
                scope.spawn(move || {
                    together.wait();
                    match target.apply_to(planned, desired) {
                        Ok(_) => Some(nsid),
                        Err(error) => {
                            assert!(matches!(error, ApplyError::Outdated { .. }), "{error}");
                            None
                        }
                    }
                })
            })
            .collect();
        all.into_iter().filter_map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!(target.config(), with_another(&config, made[0]));
}
