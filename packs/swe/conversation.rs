//! The conversation with a model, kept within a size limit.
//!
//! The oldest outputs are left out first, with a marker in their place.

use std::collections::VecDeque;

use helmdeck_llm::Message;

/// Number of the newest outputs that are never left out, only shortened.
const KEPT: usize = 2;

/// Under how many bytes an output is not shortened any more.
const SHORT: usize = 512;

/// The messages so far.
#[derive(Debug)]
pub(super) struct Conversation {
    messages: Vec<Message>,
    /// The places of outputs that are still whole, oldest first.
    outputs: VecDeque<usize>,
    bytes: usize,
    /// Size limit, in bytes.
    limit: usize,
}

impl Conversation {
    /// Starts with the rules and the task.
    pub(super) fn new(system: String, task: String, limit: usize) -> Self {
        let messages = vec![Message::system(system), Message::user(task)];
        let bytes = messages.iter().map(Message::bytes).sum();
        Self {
            messages,
            outputs: VecDeque::new(),
            bytes,
            limit,
        }
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

    /// Leaves out old outputs if the conversation is over its size limit.
    ///
    /// It goes down to two thirds of the limit at once, so that the endpoint's prompt cache stays
    /// valid for some steps. If that is not enough, it shortens the newest output. Returns how many
    /// it left out or shortened, or `None` if the conversation is still too long.
    pub(super) fn fit(&mut self) -> Option<usize> {
        if self.bytes <= self.limit {
            return Some(0);
        }
        let mut cut = self.leave_out_down_to(self.limit / 3 * 2);
        while self.bytes > self.limit {
            let shortened = self.shorten_newest();
            if shortened == 0 {
                return None;
            }
            cut += shortened;
        }
        Some(cut)
    }

    /// Shrinks the conversation after the endpoint reported it as too long.
    ///
    /// From now on it stays below its present size. It is halved as far as possible, so that the
    /// next steps have room. Returns how many outputs were left out or shortened, or `None` if the
    /// conversation does not get shorter.
    pub(super) fn shrink(&mut self) -> Option<usize> {
        let before = self.bytes;
        self.limit = before.saturating_sub(1);
        let mut cut = self.leave_out_down_to(before / 2);
        if self.bytes > before / 4 * 3 {
            cut += self.shorten_newest();
        }
        (self.bytes < before).then_some(cut)
    }

    fn leave_out_down_to(&mut self, target: usize) -> usize {
        let mut left_out = 0;
        while self.bytes > target && self.outputs.len() > KEPT {
            let Some(place) = self.outputs.pop_front() else {
                break;
            };
            self.leave_out(place);
            left_out += 1;
        }
        left_out
    }

    /// Halves the outputs that are never left out. Returns how many got shorter.
    fn shorten_newest(&mut self) -> usize {
        let places: Vec<usize> = self.outputs.iter().copied().collect();
        places
            .into_iter()
            .filter(|place| self.shorten(*place))
            .count()
    }

    fn shorten(&mut self, place: usize) -> bool {
        let Some(Message::Tool { content, .. } | Message::User { content }) =
            self.messages.get_mut(place)
        else {
            return false;
        };
        if content.len() < SHORT {
            return false;
        }
        let head = content.floor_char_boundary(content.len() / 4);
        let tail = content.ceil_char_boundary(content.len() - content.len() / 4);
        let left_out = tail - head;
        let shorter = format!(
            "{}\n[... {left_out} bytes left out here to save room ...]\n{}",
            &content[..head],
            &content[tail..]
        );
        self.bytes -= content.len() - shorter.len();
        *content = shorter;
        true
    }

    fn leave_out(&mut self, place: usize) {
        let Some(Message::Tool { content, .. } | Message::User { content }) =
            self.messages.get_mut(place)
        else {
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
        Message::Tool {
            tool_call_id: "x".into(),
            content: "o".repeat(bytes),
        }
    }

    fn content(message: &Message) -> &str {
        match message {
            Message::Tool { content, .. } => content,
            _ => "",
        }
    }

    #[test]
    fn the_oldest_outputs_are_left_out_and_say_so() {
        let mut conversation = Conversation::new("rules".into(), "task".into(), 3000);
        for _ in 0..5 {
            conversation.push_output(output(900));
        }
        assert_eq!(conversation.fit(), Some(3));
        let shown: Vec<bool> = conversation.messages()[2..]
            .iter()
            .map(|m| content(m).starts_with("[900 bytes"))
            .collect();
        assert_eq!(shown, [true, true, true, false, false]);
        assert_eq!(
            conversation.bytes,
            conversation
                .messages()
                .iter()
                .map(Message::bytes)
                .sum::<usize>()
        );
        assert_eq!(conversation.fit(), Some(0));
    }

    #[test]
    fn what_cannot_be_left_out_ends_the_conversation() {
        let mut conversation = Conversation::new("rules".into(), "t".repeat(500), 400);
        assert_eq!(conversation.fit(), None);
        conversation.push_output(output(10));
        assert_eq!(conversation.fit(), None);
    }

    #[test]
    fn shrinking_ends_when_nothing_is_left_to_shrink() {
        let mut conversation = Conversation::new("rules".into(), "task".into(), 1 << 20);
        for _ in 0..4 {
            conversation.push_output(output(1000));
        }
        let mut sizes = vec![conversation.bytes];
        while conversation.shrink().is_some() {
            sizes.push(conversation.bytes);
        }
        assert!(
            sizes.windows(2).all(|pair| pair[1] < pair[0]) && (3..10).contains(&sizes.len()),
            "{sizes:?}"
        );
        assert_eq!(
            conversation.bytes,
            conversation
                .messages()
                .iter()
                .map(Message::bytes)
                .sum::<usize>()
        );
        assert!(
            content(&conversation.messages()[5]).contains("bytes left out here"),
            "the newest is shortened, not gone"
        );
    }

    #[test]
    fn a_conversation_that_was_shrunk_goes_on() {
        // Most of it is what the model said, which is never left out.
        let mut conversation = Conversation::new("rules".into(), "task".into(), 1 << 20);
        for _ in 0..8 {
            conversation.push(Message::user("a".repeat(3000)));
            conversation.push_output(output(2000));
        }
        let before = conversation.bytes;
        assert!(conversation.shrink().is_some());
        assert!(conversation.bytes > before / 2, "half of it cannot be had");
        for _ in 0..2 {
            conversation.push_output(output(1000));
            assert!(conversation.fit().is_some());
        }
        while conversation.bytes <= conversation.limit {
            conversation.push_output(output(2000));
        }
        assert!(conversation.fit().is_some() && conversation.bytes < before);
    }
}
