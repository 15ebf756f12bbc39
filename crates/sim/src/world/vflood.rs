//! vFlood: guests' agents find out whether their cores are missing, and their hosts rest or act.

use super::hosts::Cause;
use super::{Core, Recorder};
use crate::event::Event;
use crate::guest::vflood::{Agent, HEARTBEAT};
use crate::host::vflood::Vflood;
use crate::packet::GuestId;

/// Heartbeats that two agents need to agree: the host takes its word back, the guest says that it is plain.
const BEATS_BEFORE: u32 = 3;

impl<R: Recorder> Core<R> {
    /// Gives a guest an agent that has run for a while. To be called before anything happens, when its port has vFlood.
    pub fn add_vflood_agent(&mut self, id: GuestId, mut agent: Agent) {
        let now = self.now;
        let Some(vflood) = self.vflood_of(id) else { return };
        for _ in 0..BEATS_BEFORE {
            vflood.hear(now, agent.word(now, vflood.attests()));
            agent.hear(vflood.attests());
            agent.say(now);
        }
        let floods = agent.floods();
        self.events.push(agent.look_at(), Event::Look(id));
        self.events.push(now + HEARTBEAT, Event::Heartbeat(id));
        self.guests[id.0 as usize].vflood = Some(agent);
        if !floods {
            self.end_floods(id);
        }
    }

    /// vFlood at a guest's port, if it is there.
    pub fn vflood_of(&mut self, id: GuestId) -> Option<&mut Vflood> {
        self.guests.get_mut(id.0 as usize)?.port.as_mut()?.shims.find()
    }

    pub(super) fn on_look_event(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        let Some(agent) = &mut guest.vflood else { return };
        if guest.vcpu.is_on() {
            let at = agent.look(self.now);
            self.events.push(at, Event::Look(id));
        } else {
            agent.is_late_look = true;
            self.want_core(id, Cause::Clock);
        }
    }

    pub(super) fn on_heartbeat_event(&mut self, id: GuestId) {
        let now = self.now;
        self.events.push(now + HEARTBEAT, Event::Heartbeat(id));
        let guest = &mut self.guests[id.0 as usize];
        let (Some(agent), Some(port)) = (&mut guest.vflood, &mut guest.port) else { return };
        let Some(vflood) = port.shims.find::<Vflood>() else { return };
        if guest.vcpu.is_on() {
            agent.say(now);
        } else {
            agent.is_late_beat = true;
        }
        vflood.hear(now, agent.word(now, vflood.attests()));
        if guest.vcpu.is_on() {
            self.hear_vflood(id);
        } else {
            self.want_core(id, Cause::Clock);
        }
    }

    /// A guest's agent has the guest's core again.
    pub(super) fn wake_vflood_agent(&mut self, id: GuestId) {
        let now = self.now;
        let Some(agent) = &mut self.guests[id.0 as usize].vflood else { return };
        if agent.is_late_look {
            let at = agent.look(now);
            self.events.push(at, Event::Look(id));
        }
        self.hear_vflood(id);
        if let Some(agent) = self.guests[id.0 as usize].vflood.as_mut().filter(|agent| agent.is_late_beat) {
            agent.say(now);
        }
    }

    /// A guest hears what its host attests.
    fn hear_vflood(&mut self, id: GuestId) {
        let guest = &mut self.guests[id.0 as usize];
        let (Some(agent), Some(port)) = (&mut guest.vflood, &mut guest.port) else { return };
        let Some(attests) = port.shims.find::<Vflood>().map(|vflood| vflood.attests()) else { return };
        if agent.hear(attests) {
            self.end_floods(id);
        }
    }

    /// The host takes its word back: existing connections are plain for good.
    fn end_floods(&mut self, id: GuestId) {
        let tcp = &self.guests[id.0 as usize].tcp;
        for slot in self.conns.slots.iter_mut().filter(|slot| slot.guest == id) {
            slot.conn.be_plain(tcp);
        }
    }
}
