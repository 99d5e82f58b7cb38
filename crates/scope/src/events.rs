//! What happens, as those hear it who have a scope: what happens to their drives and subsystems, to
//! ports that these are at, and to tasks that change nothing else.

use std::sync::Weak;

use crate::Limited;
use crate::own::Own;
use ebof_manage::enclosure::Task;
use ebof_manage::events::{ANSWER_MAX, Event, EventKind, Events, EventsSince, NewEvent, Wake};

impl Events for Limited {
    fn since(&self, id: u64, max: usize) -> EventsSince {
        let filter = Filter { own: self.own(), tasks: self.whole.enclosure.tasks() };
        let max = max.min(ANSWER_MAX);
        let mut answer = self.whole.events.since(id, ANSWER_MAX);
        let mut own = Vec::new();
        loop {
            let read = std::mem::take(&mut answer.events);
            let Some(last) = read.last().map(|event| event.id) else { break };
            own.extend(read.into_iter().filter(|event| filter.passes(event)).take(max - own.len()));
            if own.len() >= max || last >= answer.latest {
                break;
            }
            answer.events = self.whole.events.since(last, ANSWER_MAX).events;
        }
        // That some are lost is told, and not how many: others had some of them.
        EventsSince { events: own, lost: answer.lost.min(1), ..answer }
    }

    fn latest(&self) -> u64 {
        self.whole.events.latest()
    }

    fn subscribe(&self, wake: Weak<Wake>) {
        self.whole.events.subscribe(wake);
    }

    fn report(&self, event: NewEvent) {
        self.whole.events.report(event);
    }

    fn clear(&self) -> usize {
        // They are everybody's.
        0
    }
}

/// Which events are told.
struct Filter {
    own: Own,
    tasks: Vec<Task>,
}

impl Filter {
    /// What is not named here is not told: who logs in, what the configuration becomes, which
    /// connections are refused.
    fn passes(&self, event: &Event) -> bool {
        use EventKind as Of;
        let object = event.object.as_str();
        match event.kind {
            Of::TargetStarted | Of::TargetStopping => true,
            Of::PortUp | Of::PortDown => self.own.has_port(object),
            Of::TaskBegan | Of::TaskProgress | Of::TaskEnded | Of::TaskFailed => self.has_task(object),
            Of::HostConnected
            | Of::HostDisconnected
            | Of::ControllerFailed
            | Of::FunctionGiven
            | Of::FunctionTaken
            | Of::FunctionMoved
            | Of::FunctionChanged
            | Of::NamespaceAdded
            | Of::NamespaceRemoved
            | Of::NamespaceChanged
            | Of::SubsystemAdded
            | Of::SubsystemRemoved
            | Of::SubsystemChanged
            | Of::DriveAdded
            | Of::DriveRemoved
            | Of::DriveFailed
            | Of::DriveRecovered
            | Of::HealthWarning
            | Of::HealthRestored
            | Of::DamageFound
            | Of::FirmwareChanged
            | Of::ObjectMissing
            | Of::ObjectFound => self.own.has_object(object),
            _ => false,
        }
    }

    /// `task 7`
    fn has_task(&self, object: &str) -> bool {
        let number: Option<u64> = object.strip_prefix("task ").and_then(|number| number.parse().ok());
        let task = self.tasks.iter().find(|task| Some(task.id) == number);
        task.is_some_and(|task| self.own.has_all_of(&task.changes))
    }
}
