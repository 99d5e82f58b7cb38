//! ebof's own messages. Each has one argument, the sentence: what it is about is in the sentence.

use ebof_manage::events::EventKind;

use super::camel;

/// Messages besides those of events: the identifier, the severity, what it means, what to do.
pub(crate) const OWN: &[(&str, &str, &str, &str)] = &[
    ("AccountNeeded", "Warning", "The change would leave nobody who may administer accounts.", RESOLUTION),
    ("Audited", "OK", "Something was changed, or refused, and recorded.", "None."),
    ("CertificateRefused", "Warning", "A certificate or a request for one is not accepted.", RESOLUTION),
    ("ChangeConflicts", "Warning", "A change contradicts what there is, or another change.", RESOLUTION),
    ("ChangeFailed", "Critical", "A change was begun and failed.", RESOLUTION),
    ("ChangeOutdated", "Warning", "What a change starts from is not there any more.", "Look at it again."),
    ("ChangeRefused", "Warning", "A change is not accepted.", RESOLUTION),
    ("ConfigurationRefused", "Warning", "The text of a configuration is not accepted.", RESOLUTION),
    ("EventsLost", "Warning", "Events were not read in time.", "Read the resources that matter again."),
    ("NotRestarted", "Warning", "The service is not started again.", RESOLUTION),
    ("NotTakenBack", "Critical", "What a failed change left behind.", "Make it what it is to be by another change."),
    ("NothingToPlan", "Warning", "A request changes neither the box nor its configuration.", RESOLUTION),
    ("ObjectBusy", "Warning", "Another task is changing the object.", "Try again when that has ended."),
    ("ObjectNotFound", "Warning", "A change names an object that there is not.", RESOLUTION),
    (
        "OutcomeUnknown",
        "Critical",
        "It is not known whether a change is stored: a restart may bring it.",
        "Mend the medium of the state directory, and look at what is in force.",
    ),
    ("ProtocolNotChanged", "Warning", "A protocol of the service cannot be changed so.", RESOLUTION),
    ("SlowCommand", "Warning", "A command took as long as the slow threshold, or longer.", RESOLUTION),
    ("TaskRemark", "OK", "What is to be known about what a task did.", "None."),
];

pub(crate) const RESOLUTION: &str = "See the Resolution of the message.";

/// Whether there is a message of ebof's own with this identifier.
pub(crate) fn is_own(id: &str) -> bool {
    OWN.iter().any(|(own, ..)| *own == id) || EventKind::ALL.iter().any(|kind| camel(kind.name()) == id)
}
