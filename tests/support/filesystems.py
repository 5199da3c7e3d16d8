"""What every file system must do for whoever uses the door `Files`."""

from pipeline.storage.files import Files


def live_through(files: Files, folder: str) -> None:
    """Files that are written, read, replaced, moved and deleted, each step as the next one sees it."""
    assert not files.exists(folder)
    assert files.names(folder) == []
    files.write(f"{folder}/one", "text\r\nü\u2028")
    files.write(f"{folder}/two", bytes(range(256)))
    files.write(f"{folder}/sub/three", "")
    assert files.names(folder) == ["one", "sub", "two"]
    assert files.folders(folder) == ["sub"]
    assert [files.has(f"{folder}/{name}") for name in ("one", "three", "sub/three")] == [True, False, True]
    assert {name: size for name, (size, _) in files.sizes(folder).items()} == {"one": 11, "two": 256}
    assert files.text(f"{folder}/one") == "text\r\nü\u2028"
    assert files.tail(f"{folder}/two", 256, 3) == bytes([253, 254, 255])
    assert files.tail(f"{folder}/two", 256, 999) == bytes(range(256))
    files.write(f"{folder}/one", "other")
    files.move(f"{folder}/one", f"{folder}/moved")
    files.move(f"{folder}/nothing", f"{folder}/there")
    assert files.text(f"{folder}/moved") == "other"
    assert abs(files.modified_ms(f"{folder}/moved") - files.sizes(folder)["moved"][1]) < 1_000
    files.delete(f"{folder}/moved")
    files.delete(f"{folder}/moved")
    files.move(f"{folder}/sub", f"{folder}/aside")
    assert files.names(folder) == ["aside", "two"]
    files.delete_folder(f"{folder}/aside")
    files.delete_folder(f"{folder}/aside")
    assert files.names(folder) == ["two"]
    assert files.text_if_there(f"{folder}/nothing") is None
