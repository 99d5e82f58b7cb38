//! What the box asks the drive for, one thing after the other, and what it knows then.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use ebof_drive::function::{Function as Resources, FunctionId};
use ebof_drive::{Answer, NewNamespace, PortNames, Refusal, Request};
use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{Nsid, Status};

use super::super::acts::{FUNCTIONS, What};
use super::{BLOCK_BYTES, COUNT, Reservation, Space, World, function_of};
use crate::model::Blocks;
use crate::story::{Failure, fail};

/// Something that the box asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoxChange {
    Create { nsid: u32 },
    Map { nsid: u32, function: Option<u16> },
    GiveTo { function: u16, port: Option<usize> },
    Assign { function: u16, resource: ResourceType, count: u16 },
    Online { function: u16 },
    Offline { function: u16 },
    Reset,
}

/// It was asked for.
pub(super) struct OpenChange {
    pub(super) change: BoxChange,
    /// `None`: it has to be asked for (again).
    answer: Option<Receiver<Result<Answer, Refusal>>>,
    /// Not before this moment.
    at: Instant,
}

/// How soon the box asks again for what could not be done.
const AGAIN: Duration = Duration::from_millis(250);

/// Flexible resources of each type that there are.
const TOTAL: u32 = Resources::RESOURCES_EACH as u32 * FUNCTIONS as u32;

/// Has the box do what an act says, unless it is busy.
pub(super) fn change(world: &mut World, what: What) {
    if world.asked.is_some() || !world.changes.is_empty() {
        return;
    }
    let change = match what {
        What::Map { nsid, function } if is_on_its_way(world, nsid, function) => return,
        What::Map { nsid, function } => BoxChange::Map { nsid, function },
        What::GiveTo { function, port } => BoxChange::GiveTo { function, port },
        What::Online { function, queues } => return bring_online(world, function, queues),
        What::Offline { function } => BoxChange::Offline { function },
        What::Reset => BoxChange::Reset,
        _ => return,
    };
    world.changes.push_back(change);
}

/// Whether the function once had the namespace, and something for it may still be on its way
/// from one of its hosts: if the namespace comes back, that is done with good reason.
fn is_on_its_way(world: &World, nsid: u32, function: Option<u16>) -> bool {
    let mut all = world.flights.values().chain(world.ghosts.values());
    all.any(|flight| flight.is_over && flight.nsid == nsid && Some(function_of(flight.host)) == function)
}

pub(super) fn bring_online(world: &mut World, function: u16, count: u16) {
    if !world.functions[&function].is_online {
        let assign = |resource| BoxChange::Assign { function, resource, count };
        world.changes.extend([ResourceType::Queues, ResourceType::Interrupts].map(assign));
        world.changes.push_back(BoxChange::Online { function });
    }
}

/// The target is gone: what was asked for may have been done.
pub(super) fn forget_answer(world: &mut World) {
    if let Some(asked) = &mut world.asked {
        asked.answer = None;
    }
}

pub(super) fn step_box(world: &mut World) -> Result<(), Failure> {
    if world.rig.disk.is_off() {
        forget_answer(world);
        return Ok(());
    }
    let Some(life) = &world.life else { return Ok(()) };
    let Some(asked) = &mut world.asked else {
        let at = world.rig.clock.now();
        world.asked = world.changes.pop_front().map(|change| OpenChange { change, answer: None, at });
        if let Some(OpenChange { change, .. }) = world.asked {
            begin(world, change);
        }
        return Ok(());
    };
    let change = asked.change;
    let Some(answer) = &asked.answer else {
        if world.rig.clock.now() < asked.at {
            return Ok(());
        }
        asked.answer = request(change, |port| life.port_name(port).map(str::to_owned)).and_then(|one| life.ask(one));
        world.rig.note(|| format!("the box asks for {change:?}"));
        return Ok(());
    };
    match answer.try_recv() {
        Err(TryRecvError::Empty) => Ok(()),
        Err(TryRecvError::Disconnected) => {
            asked.answer = None;
            Ok(())
        }
        Ok(Ok(_)) => {
            world.asked = None;
            world.rig.note(|| format!("the box has {change:?}"));
            done(world, change)
        }
        Ok(Err(refusal)) => refused(world, change, refusal.status),
    }
}

/// From now on nobody knows, until it is answered.
fn begin(world: &mut World, change: BoxChange) {
    match change {
        BoxChange::Create { .. } => {}
        BoxChange::Map { nsid, .. } => {
            if let Some(space) = world.spaces.get_mut(&nsid) {
                space.is_moving = true;
            }
        }
        BoxChange::GiveTo { function, .. }
        | BoxChange::Assign { function, .. }
        | BoxChange::Online { function }
        | BoxChange::Offline { function } => function_mut(world, function).is_changing = true,
        BoxChange::Reset => world.functions.values_mut().for_each(|function| function.is_changing = true),
    }
}

fn function_mut(world: &mut World, id: u16) -> &mut super::Function {
    world.functions.entry(id).or_default()
}

fn done(world: &mut World, change: BoxChange) -> Result<(), Failure> {
    let now = world.rig.now();
    match change {
        BoxChange::Create { nsid } => {
            let blocks = Blocks::new(u16::try_from(nsid).unwrap_or(u16::MAX), BLOCK_BYTES as usize, false);
            let reservation = Reservation::Free { since: now };
            let space = Space { blocks, owner: None, since: now, is_moving: false, reservation };
            world.spaces.insert(nsid, space);
            Ok(())
        }
        BoxChange::Map { nsid, function } => {
            if let Some(space) = world.spaces.get_mut(&nsid) {
                (space.owner, space.since, space.is_moving) = (function, now, false);
            }
            world.rig.count("moved namespaces");
            let why = format!("namespace {nsid} has gone to {function:?}");
            world.bar(&why, |flight, _| flight.nsid == nsid && Some(function_of(flight.host)) != function)
        }
        BoxChange::GiveTo { function, port } => {
            let one = function_mut(world, function);
            (one.port, one.since, one.is_changing) = (port, now, false);
            world.rig.count("moved functions");
            let why = format!("function {function} has gone to {port:?}");
            world.bar(&why, |flight, _| function_of(flight.host) == function && Some(flight.port) != port)
        }
        BoxChange::Assign { function, resource, count } => assigned(world, function, resource, count),
        BoxChange::Online { function } => {
            let one = function_mut(world, function);
            (one.is_online, one.since, one.is_changing) = (true, now, false);
            let (queues, interrupts) = (one.queues, one.interrupts);
            if queues < 2 || interrupts < 1 {
                return fail(format!("function {function} is online with {queues} queues"));
            }
            Ok(())
        }
        BoxChange::Offline { function } => {
            taken_offline(world, function);
            world.bar(&format!("function {function} is offline"), |flight, _| function_of(flight.host) == function)
        }
        BoxChange::Reset => {
            (1..=FUNCTIONS).for_each(|function| taken_offline(world, function));
            world.bar("all functions are offline", |_, _| true)
        }
    }
}

fn taken_offline(world: &mut World, function: u16) {
    let now = world.rig.now();
    world.rig.count("functions taken offline");
    let one = function_mut(world, function);
    *one = super::Function { port: one.port, since: now, ..super::Function::default() };
}

fn assigned(world: &mut World, function: u16, resource: ResourceType, count: u16) -> Result<(), Failure> {
    if !fits(world, function, resource, count) {
        return fail(format!("function {function} got {count} of {resource:?}: more than there are"));
    }
    let now = world.rig.now();
    let one = function_mut(world, function);
    match resource {
        ResourceType::Queues => one.queues = count,
        _ => one.interrupts = count,
    }
    (one.since, one.is_changing) = (now, false);
    Ok(())
}

fn fits(world: &World, function: u16, resource: ResourceType, count: u16) -> bool {
    let others = world.functions.iter().filter(|(id, _)| **id != function).map(|(_, other)| match resource {
        ResourceType::Queues => u32::from(other.queues),
        _ => u32::from(other.interrupts),
    });
    others.sum::<u32>() + u32::from(count) <= TOTAL && count <= Resources::RESOURCES_MAX
}

fn refused(world: &mut World, change: BoxChange, status: Status) -> Result<(), Failure> {
    world.rig.note(|| format!("the box is refused {change:?}: {status}"));
    // A device that is slow beyond all deadlines; or the target is about to end.
    if status.is(Status::COMMAND_INTERRUPTED) || status.is(Status::INTERNAL_ERROR) {
        world.rig.count("interrupted changes");
        forget_answer(world);
        if let Some(asked) = &mut world.asked {
            asked.at = world.rig.clock.now() + AGAIN;
        }
        return Ok(());
    }
    if let BoxChange::Assign { function, resource, count } = change
        && status.is(Status::INVALID_RESOURCE_ID)
        && !fits(world, function, resource, count)
    {
        world.rig.count("resources that there are not");
        world.asked = None;
        world.changes.clear();
        let now = world.rig.now();
        let one = function_mut(world, function);
        (one.since, one.is_changing) = (now, false);
        return Ok(());
    }
    fail(format!("the box is refused {change:?} without a reason: {status}"))
}

fn request(change: BoxChange, port_name: impl Fn(usize) -> Option<String>) -> Option<Request> {
    let virtualize = |function, resource, action, count| {
        let cntlid = FunctionId(function).controller();
        Request::Virtualize(VirtualizationManagement { cntlid, resource, action, count })
    };
    let queues = ResourceType::Queues;
    Some(match change {
        BoxChange::Create { .. } => Request::Create(NewNamespace {
            blocks: COUNT,
            capacity_blocks: COUNT,
            format: 1,
            ..NewNamespace::default()
        }),
        BoxChange::Map { nsid, function } => Request::Map(Nsid(nsid), function.map(FunctionId)),
        BoxChange::GiveTo { function, port } => {
            let name = match port {
                Some(port) => Some(port_name(port)?),
                None => None,
            };
            let ports = PortNames::new(name).expect("the configuration gives ports short names");
            Request::GiveTo(FunctionId(function), ports)
        }
        BoxChange::Assign { function, resource, count } => {
            virtualize(function, resource, VirtualizationAction::Assign, count)
        }
        BoxChange::Online { function } => virtualize(function, queues, VirtualizationAction::Online, 0),
        BoxChange::Offline { function } => virtualize(function, queues, VirtualizationAction::Offline, 0),
        BoxChange::Reset => Request::ResetPrimary,
    })
}
