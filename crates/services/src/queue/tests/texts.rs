//! Tests of queues of texts.

use super::*;

/// A queue of texts, and the batches that it sends.
fn text_queue(
    bench: &Bench,
    params: QueueParams,
) -> (Arc<Queue<Text>>, mpsc::Receiver<Vec<Bytes>>) {
    let (batches, received) = mpsc::channel();
    let sender = Sender::of_texts(move |batch: Arc<Vec<Text>>| {
        let pieces: Vec<Bytes> = Text::pieces(&batch).collect();
        let entries: usize = batch.iter().map(Text::entries).sum();
        let commas = pieces
            .iter()
            .flatten()
            .filter(|byte| **byte == b',')
            .count();
        assert_eq!(commas, entries);
        batches.send(pieces).unwrap();
        std::future::ready(Ok(()))
    });
    let queue = bench.queues.get("http-log", "texts", params, sender);
    (queue, received)
}

#[tokio::test(start_paused = true)]
async fn texts_of_a_batch_are_few_pieces_in_order() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, batches_of(1000));
    let texts: Vec<String> = (0..1000).map(|number| format!("{number:0>500}")).collect();
    for text in &texts {
        queue.push_text(b',', text.as_bytes());
    }
    sleep(SECOND).await;
    let pieces = received.try_recv().unwrap();
    // Half a megabyte in chunks of 4 to 64 KiB.
    assert!(pieces.len() <= 16, "{}", pieces.len());
    let expected: String = texts.iter().map(|text| format!(",{text}")).collect();
    assert_eq!(pieces.concat(), expected.as_bytes());
    let counts = queue.counts();
    assert_eq!((counts.sent, counts.bytes), (1000, 0));
}

#[tokio::test(start_paused = true)]
async fn texts_of_every_size_are_sent_whole_and_dropped_ones_are_not() {
    let bench = Bench::new([]);
    let params = QueueParams {
        max_entries: 5,
        max_batch_size: 100,
        ..QueueParams::default()
    };
    let (queue, received) = text_queue(&bench, params);
    for size in [1, 0, 5000, 100_000, 17_000, 65_536, 3] {
        queue.push_text(b',', "x".repeat(size).as_bytes());
    }
    sleep(2 * SECOND).await;
    let sent = received.try_recv().unwrap().concat();
    let sizes: Vec<usize> = sent.split(|byte| *byte == b',').map(<[u8]>::len).collect();
    assert_eq!(sizes, [0, 5000, 100_000, 17_000, 65_536, 3]);
    assert_eq!(queue.counts().lost(), 2);
}

/// A text that counts how often it is written.
struct Late(Arc<AtomicUsize>, String);

impl Unwritten for Late {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        out.push(b',');
        out.extend_from_slice(self.1.as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn texts_that_are_written_late_are_sent_in_order_with_the_others() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, batches_of(1000));
    let (writes, mut expected) = (Arc::default(), String::new());
    for number in 0..1000 {
        let text = format!("{number:0>300}");
        expected.push(',');
        expected.push_str(&text);
        match number % 3 {
            0 => queue.push_text(b',', text.as_bytes()),
            _ => queue.push_unwritten(Box::new(Late(Arc::clone(&writes), text)), 200),
        }
    }
    assert_eq!(queue.counts().bytes, 334 * 300 + 666 * 200);
    sleep(SECOND).await;
    assert_eq!(received.try_recv().unwrap().concat(), expected.as_bytes());
    assert_eq!((queue.counts().sent, queue.counts().bytes), (1000, 0));
    assert_eq!(writes.load(Ordering::Relaxed), 666);
}

/// A text that cannot be written.
struct Broken;

impl Unwritten for Broken {
    fn write(&self, _: &mut Vec<u8>) {
        panic!("on purpose");
    }
}

#[tokio::test(start_paused = true)]
async fn a_text_that_cannot_be_written_does_not_end_its_queue() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, QueueParams::default());
    queue.push_unwritten(Box::new(Broken), 1);
    queue.push_text(b',', b"next");
    sleep(SECOND).await;
    assert_eq!(received.try_recv().unwrap().concat(), b",next");
    assert_eq!((queue.counts().sent, queue.counts().refused), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_text_is_written_once_however_often_it_is_sent() {
    let bench = Bench::new([]);
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = attempts.clone();
    let sender = Sender::of_texts(move |batch: Arc<Vec<Text>>| {
        assert_eq!(Text::pieces(&batch).collect::<Vec<_>>().concat(), b",a");
        std::future::ready(match counted.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(SendError::new("status 500")),
            _ => Ok(()),
        })
    });
    let queue = bench
        .queues
        .get("http-log", "late", QueueParams::default(), sender);
    let writes = Arc::default();
    queue.push_unwritten(Box::new(Late(Arc::clone(&writes), "a".to_owned())), 1);
    sleep(SECOND).await;
    assert_eq!(queue.counts().sent, 1);
    assert_eq!(
        (
            attempts.load(Ordering::Relaxed),
            writes.load(Ordering::Relaxed)
        ),
        (4, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn texts_that_were_pushed_together_stay_together() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, batches_of(5));
    for texts in [",1,2", ",3,4", ",5,6", ",7,8"] {
        queue.push_texts(2, texts.as_bytes());
    }
    sleep(2 * SECOND).await;
    let batches: Vec<Vec<u8>> = received.try_iter().map(|batch| batch.concat()).collect();
    // A third pair would make the batch larger than configured.
    assert_eq!(batches, [*b",1,2,3,4", *b",5,6,7,8"]);
    assert_eq!((queue.counts().pushed, queue.counts().sent), (8, 8));
}

#[tokio::test(start_paused = true)]
async fn texts_that_were_pushed_together_are_dropped_together() {
    let bench = Bench::new([]);
    let params = QueueParams {
        max_entries: 5,
        max_batch_size: 100,
        ..QueueParams::default()
    };
    let (queue, received) = text_queue(&bench, params);
    for texts in [",1,2", ",3,4", ",5,6"] {
        queue.push_texts(2, texts.as_bytes());
    }
    assert_eq!(queue.counts().waiting, 4);
    sleep(2 * SECOND).await;
    assert_eq!(received.try_recv().unwrap().concat(), b",3,4,5,6");
    let counts = queue.counts();
    assert_eq!((counts.dropped_entries, counts.lost()), (2, 2));
    assert_complete(counts);
}

#[tokio::test(start_paused = true)]
async fn more_texts_together_than_a_batch_has_are_a_batch_of_their_own() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, batches_of(2));
    queue.push_texts(3, b",1,2,3");
    queue.push_text(b',', b"4");
    sleep(2 * SECOND).await;
    let batches: Vec<Vec<u8>> = received.try_iter().map(|batch| batch.concat()).collect();
    assert_eq!(batches, [b",1,2,3".to_vec(), b",4".to_vec()]);
}

#[tokio::test(start_paused = true)]
async fn texts_that_were_pushed_one_after_the_other_are_in_few_pieces() {
    let bench = Bench::new([]);
    let (queue, received) = text_queue(&bench, batches_of(800));
    let text = |number: usize| match number {
        // Texts of this size are allocated alone.
        250 => format!(",{}", "x".repeat(70_000)),
        number => format!(",{number}"),
    };
    for number in 0..500 {
        queue.push_texts(1, text(number).as_bytes());
    }
    sleep(2 * SECOND).await;
    let pieces = received.try_recv().unwrap();
    assert!(pieces.len() < 10, "{} pieces", pieces.len());
    let all: String = (0..500).map(text).collect();
    assert_eq!(pieces.concat(), all.as_bytes());
    assert_eq!((queue.counts().pushed, queue.counts().sent), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn an_eighth_of_a_batch_is_dropped_at_once() {
    let bench = Bench::new([]);
    let params = QueueParams {
        max_entries: 80,
        max_batch_size: 1000,
        ..QueueParams::default()
    };
    let (queue, received) = text_queue(&bench, params);
    for number in 100..181 {
        queue.push_texts(1, format!(",{number}").as_bytes());
    }
    let counts = queue.counts();
    assert_eq!((counts.waiting, counts.dropped_entries), (71, 10));
    sleep(2 * SECOND).await;
    let expected: String = (110..181).map(|number| format!(",{number}")).collect();
    assert_eq!(received.try_recv().unwrap().concat(), expected.as_bytes());
    assert_complete(queue.counts());
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_bytes_drops_a_part_of_what_waits() {
    let bench = Bench::new([]);
    let params = QueueParams {
        max_batch_size: 200,
        max_bytes: Some(4000),
        ..QueueParams::default()
    };
    let (queue, received) = text_queue(&bench, params);
    let text = |number: u32| format!(",{number:0>299}");
    for number in 0..20 {
        queue.push_texts(1, text(number).as_bytes());
    }
    sleep(2 * SECOND).await;
    let expected: String = (7..20).map(text).collect();
    assert_eq!(received.try_recv().unwrap().concat(), expected.as_bytes());
    assert_eq!(queue.counts().dropped_bytes, 7);
    assert_complete(queue.counts());
}
