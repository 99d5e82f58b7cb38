//! Numbers that [`load`](crate::load()) assigns because the configuration does not set them: a
//! port's id, a namespace's NSID. While a target runs they stay with the port or namespace that
//! they were assigned to, whatever its position in the lists of the next configuration.

use std::collections::HashSet;

use super::{Namespace, Port, limits};

/// Whether [`load`](crate::load()) assigned a number that the configuration does not set. All
/// values compare equal, because this is not part of a configuration and is not serialised.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assigned(pub bool);

impl PartialEq for Assigned {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Assigned {}

/// Gives ports without an id that of the same port in `current`, or one that `current` does not
/// use.
pub(super) fn keep_port_ids(ports: &mut [Port], current: &[Port]) {
    let mut taken: HashSet<u16> = ports.iter().filter(|port| !port.assigned.0).map(|port| port.id).collect();
    let mut new = Vec::new();
    for port in ports.iter_mut().filter(|port| port.assigned.0) {
        match current.iter().find(|before| before.is_same(port)).filter(|before| !taken.contains(&before.id)) {
            Some(before) => {
                port.id = before.id;
                taken.insert(port.id);
            }
            None => new.push(port),
        }
    }
    let used: HashSet<u16> = current.iter().map(|port| port.id).collect();
    for port in new {
        let free = |id: &u16| !taken.contains(id);
        let id = (1..=u16::MAX).filter(free).find(|id| !used.contains(id)).or_else(|| (1..=u16::MAX).find(free));
        port.id = id.unwrap_or_default();
        taken.insert(port.id);
    }
}

/// The same for the NSIDs of namespaces.
pub(super) fn keep_nsids(namespaces: &mut [Namespace], current: &[Namespace]) {
    let mut taken: HashSet<u32> =
        namespaces.iter().filter(|namespace| !namespace.assigned.0).map(|namespace| namespace.nsid).collect();
    let mut new = Vec::new();
    for namespace in namespaces.iter_mut().filter(|namespace| namespace.assigned.0) {
        let is_it = |before: &&Namespace| before.drive.has_same_data(&namespace.drive) && !taken.contains(&before.nsid);
        match current.iter().find(is_it) {
            Some(before) => {
                taken.insert(before.nsid);
                namespace.nsid = before.nsid;
            }
            None => new.push(namespace),
        }
    }
    let used: HashSet<u32> = current.iter().map(|namespace| namespace.nsid).collect();
    for namespace in new {
        let free = |nsid: &u32| !taken.contains(nsid);
        let all = 1..=limits::NAMESPACES_MAX;
        let nsid = all.clone().filter(free).find(|nsid| !used.contains(nsid)).or_else(|| all.clone().find(free));
        let nsid = nsid.unwrap_or(namespace.nsid);
        taken.insert(nsid);
        namespace.nsid = nsid;
    }
    namespaces.sort_by_key(|namespace| namespace.nsid);
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use crate::load;

    fn config(text: &str) -> Config {
        load("a.toml", text).unwrap().config
    }

    fn after(before: &str, text: &str) -> Config {
        let mut next = config(text);
        next.keep_numbers(&config(before));
        next
    }

    fn ports(config: &Config) -> Vec<(String, u16)> {
        config.ports.iter().map(|port| (port.listen.to_string(), port.id)).collect()
    }

    fn namespaces(config: &Config) -> Vec<(u32, String)> {
        config.subsystems[0].namespaces.iter().map(|ns| (ns.nsid, ns.drive.to_string())).collect()
    }

    const PORTS: &str = "[[ports]]\nlisten = \"tcp://10.0.0.1:1\"\n[[ports]]\nlisten = \"tcp://10.0.0.2:1\"\n";

    // @test data.stable-ids
    #[test]
    fn a_port_keeps_its_id_when_an_earlier_one_is_removed() {
        let second = "[[ports]]\nlisten = \"tcp://10.0.0.2:1\"\n";
        assert_eq!(ports(&after(PORTS, second)), [("tcp://10.0.0.2:1".to_owned(), 2)]);
        // A new port does not get a number that was in use, and no port loses its number.
        let third = format!("{second}[[ports]]\nlisten = \"tcp://10.0.0.3:1\"\n");
        assert_eq!(ports(&after(PORTS, &third))[1].1, 3);
        let said = format!("{second}[[ports]]\nlisten = \"tcp://10.0.0.3:1\"\nid = 2\n");
        assert_eq!(
            ports(&after(PORTS, &said)),
            [("tcp://10.0.0.2:1".to_owned(), 3), ("tcp://10.0.0.3:1".to_owned(), 2)]
        );
    }

    fn disks(list: &str) -> String {
        format!("[[subsystems]]\nnqn = \"disks\"\nallow_any_host = true\nnamespaces = [{list}]\n")
    }

    // @test data.stable-ids
    #[test]
    fn a_namespace_keeps_its_nsid_when_an_earlier_one_is_removed() {
        let before = disks("\"a.img\", \"b.img\", \"mem:1M\", \"mem:1M\"");
        let without = after(&before, &disks("\"b.img:2M\", \"mem:1M\", \"c.img\""));
        assert_eq!(
            namespaces(&without),
            [(2, "b.img,size=2M".to_owned()), (3, "mem:1M".to_owned()), (5, "c.img".to_owned())]
        );
        // A number that is set is used.
        let said = after(&before, &disks("\"a.img\", { nsid = 2, drive = \"c.img\" }, \"b.img\""));
        assert_eq!(namespaces(&said), [(1, "a.img".to_owned()), (2, "c.img".to_owned()), (5, "b.img".to_owned())]);
    }

    #[test]
    fn a_file_that_is_opened_in_another_way_keeps_its_nsid() {
        for (before, then) in [("a.img", "a.img,direct"), ("a.img,direct", "a.img"), ("a.img", "a.img,readonly")] {
            let lists = [before, then].map(|drive| disks(&format!("\"c.img\", \"{drive}\", \"b.img\"")));
            let (before, then) = (config(&lists[0]), after(&lists[0], &lists[1]));
            let who = |config: &Config| {
                config.subsystems[0].namespaces.iter().map(|ns| (ns.nsid, ns.uuid)).collect::<Vec<_>>()
            };
            assert_eq!(who(&then), who(&before), "{}", lists[1]);
        }
    }

    #[test]
    fn the_same_text_gets_the_same_numbers() {
        let text = format!("{PORTS}{}", disks("\"a.img\", \"b.img\""));
        assert_eq!(after(&text, &text), config(&text));
        let mut next = config(&text);
        next.keep_numbers(&Config::default());
        assert_eq!(next, config(&text));
    }
}
