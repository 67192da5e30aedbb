use super::*;
use futures_util::poll;
use http_body_util::BodyExt;
use services::metrics::Kind;
use std::io::Read;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

const TEXT: Wanted = Wanted {
    format: Format::Text,
    is_compressed: false,
};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

async fn body(response: Response) -> Bytes {
    response.into_body().collect().await.unwrap().to_bytes()
}

/// Writes the number of pages that were written before.
fn counting(pages: &Arc<AtomicU64>) -> impl FnOnce(&mut Page) + Send + 'static {
    let pages = Arc::clone(pages);
    move |page| {
        page.family("pages", "P.", Kind::Gauge);
        page.count(&[], pages.fetch_add(1, Ordering::Relaxed));
    }
}

#[tokio::test]
async fn scrapers_that_come_while_a_page_is_rendered_share_the_next_one() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    let pages = Arc::new(AtomicU64::new(0));
    let (begin, begun) = oneshot::channel();
    let (end, ended) = mpsc::channel::<()>();
    let write = counting(&pages);
    let slow = move |page: &mut Page| {
        begin.send(()).unwrap();
        ended.recv().unwrap();
        write(page);
    };
    let mut first = pin!(scrapes.answer(TEXT, directory.path(), slow));
    assert!(matches!(poll!(&mut first), Poll::Pending));
    begun.await.unwrap();
    let mut others = Vec::new();
    for _ in 0..10 {
        let mut other = Box::pin(scrapes.answer(TEXT, directory.path(), counting(&pages)));
        assert!(matches!(poll!(&mut other), Poll::Pending));
        others.push(other);
    }
    // The scraper that would have rendered the next page leaves; another one takes its place.
    drop(others.remove(0));
    end.send(()).unwrap();
    assert!(body(first.await.unwrap()).await.ends_with(b"pages 0\n"));
    for other in others {
        assert!(body(other.await.unwrap()).await.ends_with(b"pages 1\n"));
    }
    let later = scrapes.answer(TEXT, directory.path(), counting(&pages));
    assert!(body(later.await.unwrap()).await.ends_with(b"pages 2\n"));
    assert!(scrapes.next().is_empty());
}

fn large(page: &mut Page) {
    page.family("large", "L.", Kind::Gauge);
    for number in 0..200_000_u64 {
        page.count(&[("number", &number.to_string())], number);
    }
}

#[tokio::test]
async fn a_large_page_is_sent_from_a_file_with_its_length() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    let response = scrapes.answer(TEXT, directory.path(), large).await.unwrap();
    let length: usize = response.headers()[CONTENT_LENGTH]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(length > IN_MEMORY);
    let mut expected = Page::in_memory(Format::Text);
    large(&mut expected);
    let sent = body(response).await;
    assert_eq!(sent.len(), length);
    assert!(*sent == *expected.into_bytes(), "the page is complete");
    assert_eq!(
        scrapes.pages.available_permits(),
        PAGES,
        "the file is closed"
    );
}

fn medium(page: &mut Page) {
    page.family("medium", "M.", Kind::Gauge);
    for number in 0..10_000_u64 {
        page.count(&[("number", &number.to_string())], number);
    }
}

#[tokio::test]
async fn slow_scrapers_occupy_a_limited_number_of_pages_and_lose_the_oldest() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    for write in [large, medium] {
        let mut unread = VecDeque::new();
        for _ in 0..PAGES + 2 {
            let response = scrapes.answer(TEXT, directory.path(), write).await.unwrap();
            unread.push_back(response.into_body());
        }
        assert_eq!(scrapes.pages.available_permits(), 0);
        for _ in 0..2 {
            unread.pop_front().unwrap().collect().await.unwrap_err();
        }
        for body in unread {
            body.collect().await.unwrap();
        }
        assert_eq!(scrapes.pages.available_permits(), PAGES);
    }
}

#[tokio::test]
async fn scrapers_that_leave_do_not_begin_several_pages_at_once() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    let pages = Arc::new(AtomicU64::new(0));
    let (end, ended) = mpsc::channel::<()>();
    let (begin, begun) = oneshot::channel();
    let slow = move |_: &mut Page| {
        begin.send(()).unwrap();
        ended.recv().unwrap();
    };
    let mut first = Box::pin(scrapes.answer(TEXT, directory.path(), slow));
    assert!(matches!(poll!(&mut first), Poll::Pending));
    begun.await.unwrap();
    drop(first);
    for _ in 0..2 * PAGES {
        let mut other = Box::pin(scrapes.answer(TEXT, directory.path(), counting(&pages)));
        assert!(matches!(poll!(&mut other), Poll::Pending));
    }
    assert_eq!(scrapes.pages.available_permits(), PAGES - 1);
    end.send(()).unwrap();
    let last = scrapes
        .answer(TEXT, directory.path(), counting(&pages))
        .await;
    assert!(body(last.unwrap()).await.ends_with(b"pages 0\n"));
}

#[tokio::test]
async fn a_compressed_page_is_complete() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    let wanted = Wanted {
        is_compressed: true,
        ..TEXT
    };
    let response = scrapes
        .answer(wanted, directory.path(), large)
        .await
        .unwrap();
    let sent = body(response).await;
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(&*sent)
        .read_to_end(&mut text)
        .unwrap();
    let mut expected = Page::in_memory(Format::Text);
    large(&mut expected);
    assert!(text == expected.into_bytes());
    assert!(sent.len() < text.len() / 4);
}

#[tokio::test]
async fn a_page_whose_thread_panics_fails_and_the_next_one_is_rendered() {
    let (scrapes, directory) = (Scrapes::default(), directory());
    let failed = scrapes
        .answer(TEXT, directory.path(), |_| panic!("a bug"))
        .await;
    assert!(matches!(failed, Err(Failure::Internal(_))));
    let pages = Arc::default();
    let next = scrapes
        .answer(TEXT, directory.path(), counting(&pages))
        .await;
    assert!(body(next.unwrap()).await.ends_with(b"pages 0\n"));
}
