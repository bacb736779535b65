//! The dialogue with a model, kept within a size: the oldest outputs are left out first, and say so.

use std::collections::VecDeque;

use helmdeck_llm::Message;

/// How many of the newest outputs are never left out.
const KEPT: usize = 2;

/// The messages so far.
#[derive(Debug)]
pub(super) struct Dialogue {
    messages: Vec<Message>,
    /// The places of outputs that are still whole, oldest first.
    outputs: VecDeque<usize>,
    bytes: usize,
    limit: usize,
}

impl Dialogue {
    /// Starts with the rules and the task.
    pub(super) fn new(system: String, task: String, limit: usize) -> Self {
        let messages = vec![Message::system(system), Message::user(task)];
        let bytes = messages.iter().map(Message::bytes).sum();
        Self { messages, outputs: VecDeque::new(), bytes, limit }
    }

    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces the rules.
    pub(super) fn set_system(&mut self, system: String) {
        if let Some(first) = self.messages.first_mut() {
            self.bytes = self.bytes - first.bytes() + system.len();
            *first = Message::system(system);
        }
    }

    pub(super) fn push(&mut self, message: Message) {
        self.bytes += message.bytes();
        self.messages.push(message);
    }

    /// Adds the output of a command, which may be left out later.
    pub(super) fn push_output(&mut self, message: Message) {
        self.outputs.push_back(self.messages.len());
        self.push(message);
    }

    /// Leaves out old outputs if the dialogue is over its size, down to two thirds of it at once, so that what the endpoint has
    /// in its cache stays good for some steps. Returns how many, or `None` if the dialogue is too long even so.
    pub(super) fn fit(&mut self) -> Option<usize> {
        let mut left_out = 0;
        if self.bytes > self.limit {
            while self.bytes > self.limit / 3 * 2 && self.outputs.len() > KEPT {
                let Some(place) = self.outputs.pop_front() else { break };
                self.leave_out(place);
                left_out += 1;
            }
        }
        (self.bytes <= self.limit).then_some(left_out)
    }

    /// Takes the endpoint's word that the dialogue is too long: halves what it may have. Returns how many outputs that left
    /// out, or `None` if it does not get shorter.
    pub(super) fn shrink(&mut self) -> Option<usize> {
        let before = self.bytes;
        self.limit = before / 2;
        let left_out = self.fit();
        (self.bytes < before).then(|| left_out.unwrap_or(1))
    }

    fn leave_out(&mut self, place: usize) {
        let Some(Message::Tool { content, .. } | Message::User { content }) = self.messages.get_mut(place) else {
            return;
        };
        let note = format!(
            "[{} bytes of output left out to save room: run the command again if you need them]",
            content.len()
        );
        if note.len() < content.len() {
            self.bytes -= content.len() - note.len();
            *content = note;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: usize) -> Message {
        Message::Tool { tool_call_id: "x".into(), content: "o".repeat(bytes) }
    }

    fn content(message: &Message) -> &str {
        match message {
            Message::Tool { content, .. } => content,
            _ => "",
        }
    }

    #[test]
    fn the_oldest_outputs_are_left_out_and_say_so() {
        let mut dialogue = Dialogue::new("rules".into(), "task".into(), 3000);
        for _ in 0..5 {
            dialogue.push_output(output(900));
        }
        assert_eq!(dialogue.fit(), Some(3));
        let shown: Vec<bool> = dialogue.messages()[2..].iter().map(|m| content(m).starts_with("[900 bytes")).collect();
        assert_eq!(shown, [true, true, true, false, false]);
        assert_eq!(dialogue.bytes, dialogue.messages().iter().map(Message::bytes).sum::<usize>());
        assert_eq!(dialogue.fit(), Some(0));
    }

    #[test]
    fn what_cannot_be_left_out_ends_the_dialogue() {
        let mut dialogue = Dialogue::new("rules".into(), "t".repeat(500), 400);
        assert_eq!(dialogue.fit(), None);
        dialogue.push_output(output(10));
        assert_eq!(dialogue.fit(), None);
    }

    #[test]
    fn shrinking_ends_when_nothing_is_left_to_shrink() {
        let mut dialogue = Dialogue::new("rules".into(), "task".into(), 1 << 20);
        for _ in 0..4 {
            dialogue.push_output(output(1000));
        }
        assert!(dialogue.shrink().is_some());
        assert!(dialogue.shrink().is_none());
    }
}
